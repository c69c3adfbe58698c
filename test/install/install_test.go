// Package install tests make install and make dist.
package install

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a complete build installs below PREFIX, without the man pages of the commands.
var files = []string{
	"bin/nearmetal", "bin/nearmetal-rsh", "bin/nearmetal-task", "bin/nearmetal-vsphere",
	"include/nearmetal/fabric.h", "include/nearmetal/layout.h", "include/nearmetal/region.h",
	"lib/nearmetal/libfabric/libivshmem-fi.so", "lib/nearmetal/libivshmem-mpi.so", "lib/nearmetal/ucx/libnearmetal-ucx.so",
	"lib/pkgconfig/nearmetal-fabric.pc",
	"lib/slurm/spank_nearmetal.so",
	"libexec/nearmetal/nm_bibw", "libexec/nearmetal/nm_bw", "libexec/nearmetal/nm_cg",
	"libexec/nearmetal/nm_coll", "libexec/nearmetal/nm_epochs", "libexec/nearmetal/nm_latency", "libexec/nearmetal/nm_mbw_mr",
	"libexec/nearmetal/nm_multi_lat", "libexec/nearmetal/nm_onesided", "libexec/nearmetal/nm_rma",
	"libexec/nearmetal/nm_stream", "libexec/nearmetal/region_atomics", "libexec/nearmetal/region_pingpong",
	"share/bash-completion/completions/nearmetal", "share/fish/vendor_completions.d/nearmetal.fish",
	"share/man/man5/nearmetal-cluster.5", "share/man/man7/fi_ivshmem.7",
	"share/zsh/site-functions/_nearmetal",
}

// TestInstall installs with a prefix of its own, and nothing outside of it and of DESTDIR. It
// ends with the usual prefix, so that build/c is as it was.
func TestInstall(t *testing.T) {
	dest := t.TempDir()
	install(t, dest, "PREFIX=/opt/nearmetal", "SLURM_PLUGINS=/opt/nearmetal/lib/slurm")
	t.Cleanup(func() { install(t, t.TempDir()) })

	top := filepath.Join(dest, "opt/nearmetal")
	var got, commands []string
	pages := 0 // of docs/
	err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(top, path)
		switch {
		case filepath.Dir(rel) == "share/man/man1":
			commands = append(commands, rel)
		case strings.HasPrefix(rel, "share/doc/nearmetal/"):
			if _, err := os.Stat("../../docs/" + strings.TrimPrefix(rel, "share/doc/nearmetal/")); err != nil {
				t.Error(err)
			}
			pages++
		default:
			got = append(got, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if !slices.Equal(got, files) {
		t.Errorf("installed below PREFIX:\n%s\nexpected:\n%s", strings.Join(got, "\n"), strings.Join(files, "\n"))
	}
	if !slices.Contains(commands, "share/man/man1/nearmetal-run.1") {
		t.Errorf("no man page of nearmetal run among %d", len(commands))
	}
	if pages < 10 {
		t.Errorf("%d pages of docs/", pages)
	}
	// What knows the prefix.
	for file, want := range map[string]string{
		"lib/pkgconfig/nearmetal-fabric.pc":  "prefix=/opt/nearmetal\n",
		"lib/slurm/spank_nearmetal.so":       "/opt/nearmetal/bin/nearmetal",
		"share/man/man5/nearmetal-cluster.5": "/opt/nearmetal/share/doc/nearmetal/reference/cluster.schema.json",
		"share/man/man1/nearmetal-bench.1":   "/opt/nearmetal/share/doc/nearmetal/bench.md",
	} {
		b, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Error(err)
		} else if !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s does not contain %q", file, want)
		}
	}

	// What another program has put beside it stays.
	other := filepath.Join(top, "bin/other")
	if err := os.WriteFile(other, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "uninstall", dest, "PREFIX=/opt/nearmetal", "SLURM_PLUGINS=/opt/nearmetal/lib/slurm")
	err = filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path != other {
			t.Errorf("make uninstall leaves %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func install(t *testing.T, dest string, settings ...string) {
	t.Helper()
	run(t, "install", dest, settings...)
}

// run makes a target for the tree in dest.
func run(t *testing.T, target, dest string, settings ...string) {
	t.Helper()
	argv := append([]string{"-C", "../..", "-s", target, "DESTDIR=" + dest}, settings...)
	if out, err := exec.Command("make", argv...).CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}
