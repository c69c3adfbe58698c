package e2e

import (
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// run prepares `nearmetal run` of a small cluster.
func run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return command(t, append([]string{"run"}, append(small, args...)...)...)
}

// write makes a file in dir.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeProgram makes a script that can be run.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// read returns a file's text, "" where there is none.
func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// With --all, or --each, a launcher runs in every VM like other commands.
func TestRunAll(t *testing.T) {
	needs(t, "mpirun.openmpi")
	finish(t, run(t, "--vms", "2", "--all", "--", "mpirun.openmpi", "--version"), "").want(t, 0, "vm0: mpirun", "vm1: mpirun")
}

// A command that is not a launcher runs once in every VM: in the caller's directory, which
// is shared, as the caller, with input for the first.
func TestRunEverywhere(t *testing.T) {
	cmd := run(t, "--vms", "2", "--env", "A=given", "--env", "MINE", "--", "sh", "-c", `
		echo "$(hostname) $(id -u) $(pwd) $A-$MINE-$OTHER $(cat input)"
		cat
		echo to standard error >&2
		echo made in $(hostname) >file-$(hostname)
		touch /usr/nearmetal-e2e && echo the root can be written
		test $(hostname) = vm0 || exit 5`)
	cmd.Env = append(cmd.Environ(), "MINE=mine", "OTHER=other", "A=mine")
	// QEMU's options, launchers and shells have a use for each of these characters.
	cmd.Dir = filepath.Join(cmd.Dir, "a,b c=d:e%f")
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, cmd.Dir, "input", "words")
	r := finish(t, cmd, "typed\n").want(t, 5, "nearmetal: vm1: exit status 5\n",
		"nearmetal: 2 files that were written in VMs are in no share: they are gone", "\nnearmetal:   vm1:/usr/nearmetal-e2e\n")
	for i, vm := range []string{"vm0", "vm1"} {
		line := fmt.Sprintf("%s: %s %d %s given-mine-other words\n", vm, vm, os.Getuid(), cmd.Dir)
		if strings.Count(r.out, line) != 1 {
			t.Errorf("not once: %q in %q", line, r.out)
		}
		if n := strings.Count(r.out, vm+": typed\n"); n != 1-i {
			t.Errorf("%s was given the input %d times", vm, n)
		}
		for _, want := range []string{vm + ": the root can be written\n", vm + ": to standard error\n"} {
			if !strings.Contains(r.out+r.err, want) {
				t.Errorf("%q is missing: %q, %q", want, r.out, r.err)
			}
		}
		file := filepath.Join(cmd.Dir, "file-"+vm)
		if got := read(file); got != "made in "+vm+"\n" {
			t.Errorf("%s: %q", file, got)
		}
		if fi, err := os.Stat(file); err == nil && int(fi.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
			t.Errorf("%s: not the caller's", file)
		}
	}
	for _, line := range strings.SplitAfter(r.out, "\n") {
		if line != "" && !strings.HasPrefix(line, "vm0: ") && !strings.HasPrefix(line, "vm1: ") {
			t.Errorf("a line without its VM: %q", line)
		}
	}
	if strings.Contains(r.out, "standard error") {
		t.Errorf("standard error is among the output: %q", r.out)
	}
	if _, err := os.Stat("/usr/nearmetal-e2e"); err == nil {
		os.Remove("/usr/nearmetal-e2e")
		t.Error("a VM wrote to the host's /usr")
	}
}

// A cluster file with groups, a network, variables and shares; flags go over it.
func TestRunFile(t *testing.T) {
	data := t.TempDir()
	write(t, data, "x", "of the host\n")
	cmd := run(t, "-f", "cluster.yaml", "--env", "B=flag", "--region", "0", "--no-prefix", "--", "sh", "-c", `
		echo $(hostname) $A $B $(cat /sys/class/net/eth0/mtu) $(ip -o -4 addr show eth0 | awk '{print $4}') $(cat /data/x)
		echo written >/data/y && echo BAD: a read-only share was written
		test -e /dev/nearmetal/region && echo BAD: a region
		touch here || echo BAD: $(pwd) cannot be written`)
	write(t, cmd.Dir, "cluster.yaml", fmt.Sprintf(`version: 1
vms:
  - name: head
  - name: work
network: {mtu: 9000, subnet: 10.99.8.0/24}
region: {size: 4MiB}
env: {A: file, B: file}
shares:
  - {path: %s, target: /data, mode: ro}
  - path: .
`, data))
	r := finish(t, cmd, "").want(t, 0,
		"head0 file flag 9000 10.99.8.1/24 of the host\n", "work0 file flag 9000 10.99.8.2/24 of the host\n")
	if strings.Contains(r.out, "BAD") || strings.Contains(r.out, ": head0") {
		t.Errorf("%q", r.out)
	}
	if read(filepath.Join(data, "y")) != "" {
		t.Error("the host's file was written")
	}
}

// The exit status of run is the command's, as a shell reports it.
func TestRunStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{128 + int(syscall.SIGTERM), "", []string{"sh", "-c", "kill -TERM $$"}},
		{127, "no-such-command", []string{"no-such-command"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			finish(t, run(t, append([]string{"--"}, c.args...)...), "").want(t, c.status, c.says)
		})
	}
}

// The root can be an image: here a squashfs and an OCI image with nothing but busybox; on demand a SIF and a qcow2, too. What one
// lacks for the command is said before a VM starts. No VM changes it. A user's has his uid.
func TestRunRoot(t *testing.T) {
	needs(t, "busybox", "mksquashfs")
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin/busybox"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "ls", "cat", "touch", "hostname", "id"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(t.TempDir(), "root.squashfs")
	if out, err := exec.Command("mksquashfs", root, image, "-quiet", "-no-progress").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	finish(t, run(t, "--root", image, "--", "mpirun", "-n", "2", "true"), "").want(t, 125, "unpacking the squashfs "+image, "root "+image+" has no mpirun")
	images := map[string]string{"squashfs": image, "OCI image": ociOf(t, root)}
	if os.Getenv("NEARMETAL_QCOW2") != "" {
		images["SIF"], images["qcow2"] = sifOf(t, image), qcow2Of(t, root) // a SIF is a squashfs behind a header
	}
	for kind, image := range images {
		t.Run(kind, func(t *testing.T) {
			cmd := run(t, "--root", image, "--", "sh", "-c", "ls /; ls /bin; hostname; touch /bin/x /here && echo both written; echo kept >kept")
			r := finish(t, cmd, "").want(t, 0, "busybox\n", "vm0\n", "both written\n")
			if strings.Contains(r.out, "usr\n") {
				t.Errorf("the host's root shows: %q", r.out)
			}
			if read(filepath.Join(cmd.Dir, "kept")) != "kept\n" {
				t.Error("what was written in the working directory is not there")
			}
		})
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 {
		t.Errorf("the root was changed: %v, %v", entries, err)
	}
	untouched(t, cache, len(images))
	t.Run("user", func(t *testing.T) {
		a := newAccount(t, 65534)
		own := filepath.Join(top, "root.squashfs")
		if out, err := exec.Command("cp", image, own).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		args := append([]string{"run", "--memory", "512MiB", "--root", own}, a.kernel(t)...)
		finish(t, a.command(t, append(args, "--", "sh", "-c", "id -u; touch /bin/x && echo kept >kept")...), "").want(t, 0, "65534\n")
		if fi, err := os.Stat(filepath.Join(a.home, "kept")); err != nil || uidOf(fi) != 65534 {
			t.Errorf("what he wrote: %v, %v", fi, err)
		}
		untouched(t, filepath.Join(a.home, ".cache"), 1)
	})
}

// untouched looks at the unpacked roots in a cache, whose number is known: nothing that VMs wrote is in them.
func untouched(t *testing.T, cache string, roots int) {
	t.Helper()
	shells, _ := filepath.Glob(filepath.Join(cache, "nearmetal", "root-*", "bin", "sh"))
	if len(shells) != roots {
		t.Errorf("%d unpacked roots, not %d: %q", len(shells), roots, shells)
	}
	for _, sh := range shells {
		bin := filepath.Dir(sh)
		for _, path := range []string{filepath.Join(bin, "x"), filepath.Join(bin, "../here")} {
			if _, err := os.Lstat(path); err == nil {
				t.Error("a VM wrote ", path)
			}
		}
	}
}

// qcow2Of returns a qcow2 as a cloud's image is one: of a disk with a table of partitions, of which the second is an ext4 with the root.
func qcow2Of(t *testing.T, root string) string {
	t.Helper()
	needs(t, "virt-tar-out", "sfdisk", "mke2fs", "qemu-img")
	dir := t.TempDir()
	tree, disk, image := filepath.Join(dir, "tree"), filepath.Join(dir, "disk"), filepath.Join(dir, "root.qcow2")
	script := `set -e
cp -a "$1" "$2"
mkdir "$2/etc" # libguestfs looks for a system by what is in it
echo 'ID=busybox' >"$2/etc/os-release"
echo '/dev/root / ext4 defaults 0 1' >"$2/etc/fstab"
truncate -s 48M "$3"
printf 'label: gpt\n1M,8M,U\n9M,38M,L\n' | sfdisk -q "$3"
mke2fs -q -t ext4 -d "$2" -E offset=9437184 "$3" 38M
qemu-img convert -O qcow2 -c "$3" "$4"`
	if out, err := exec.Command("sh", "-c", script, "sh", root, tree, disk, image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return image
}

// sifOf returns a SIF whose system is the squashfs: what siftool made, with another squashfs behind it.
func sifOf(t *testing.T, squashfs string) string {
	t.Helper()
	f, err := os.Open("../../internal/rootimage/testdata/siftool.sif.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sif, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	system, err := os.ReadFile(squashfs)
	if err != nil {
		t.Fatal(err)
	}
	// The second descriptor is the system's: where its squashfs begins, its size, and that with what fills it up.
	const descriptors, length, start = 96, 585, 17
	at := int(binary.LittleEndian.Uint64(sif[descriptors:])) + length + start
	for i, v := range []int{len(sif), len(system), len(system)} {
		binary.LittleEndian.PutUint64(sif[at+8*i:], uint64(v))
	}
	path := filepath.Join(t.TempDir(), "root.sif")
	if err := os.WriteFile(path, append(sif, system...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ociOf returns a folder with an OCI image of the root.
func ociOf(t *testing.T, root string) string {
	t.Helper()
	needs(t, "umoci")
	layout := filepath.Join(t.TempDir(), "layout")
	for _, args := range [][]string{
		{"init", "--layout", layout},
		{"new", "--image", layout + ":root"},
		{"insert", "--rootless", "--image", layout + ":root", root, "/"},
	} {
		if out, err := exec.Command("umoci", args...).CombinedOutput(); err != nil {
			t.Fatalf("umoci %v: %v: %s", args, err, out)
		}
	}
	return layout
}

// Nothing is shared where the user wants it so, or where a VM must not write; that is said.
func TestNothingShared(t *testing.T) {
	const notice = "is not shared: files written there are lost"
	cmd := run(t, "--no-share", "--", "sh", "-c", "pwd; echo lost >lost; cat lost; cat input")
	write(t, cmd.Dir, "input", "seen\n")
	r := finish(t, cmd, "").want(t, 0, cmd.Dir+"\n", "lost\n", "seen\n")
	if read(filepath.Join(cmd.Dir, "lost")) != "" {
		t.Error("the working directory was written")
	}
	if strings.Contains(r.err, notice) {
		t.Errorf("a notice of what was asked for: %q", r.err)
	}
	cmd = run(t, "--", "sh", "-c", "pwd; echo lost >nearmetal-e2e && cat nearmetal-e2e")
	cmd.Dir = "/tmp"
	r = finish(t, cmd, "").want(t, 0, "/tmp\nlost\n")
	if strings.Count(r.err, "nearmetal: warning: /tmp "+notice) != 1 {
		t.Errorf("not said once: %q", r.err)
	}
	if read("/tmp/nearmetal-e2e") != "" {
		os.Remove("/tmp/nearmetal-e2e")
		t.Error("the host's /tmp was written")
	}
}

// Output that cannot be written fails as it does natively, and not without a word: standard output that is closed, or full,
// of commands in VMs and of nearmetal's own. What cannot be written to standard error ends nothing.
func TestOutputThatFails(t *testing.T) {
	c := shared(t)
	for _, test := range []struct {
		script string
		code   int
		words  string
	}{
		{`"$0" run --memory 512MiB -- hostname >&-`, 125, "bad file descriptor"},
		{`"$0" exec ` + c + ` -- hostname >&-`, 125, "bad file descriptor"},
		{`"$0" exec --all ` + c + ` -- printf unended >/dev/full`, 125, "no space left on device"},
		{`"$0" plan >&-`, 125, "bad file descriptor"},
		{`"$0" ps >/dev/full`, 125, "no space left on device"},
		{`"$0" exec ` + c + ` -- sh -c 'echo lost >&2; echo kept; exit 3' 2>&-`, 3, "kept"},
		{`"$0" exec ` + c + ` -- sh -c 'echo lost >&2; echo kept; exit 3' 2>/dev/full`, 3, "kept"},
		{`"$0" exec ` + c + ` -- cat <&-; "$0" version >/dev/null`, 0, ""},
	} {
		cmd := command(t)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", test.script, nearmetal}
		cmd.Env = append(os.Environ(), "SHELL=/bin/sh")
		if r := finish(t, cmd, ""); r.code != test.code || !strings.Contains(r.out+r.err, test.words) {
			t.Errorf("%s: %+v", test.script, r)
		}
	}
}

// The output of one VM needs no name before it.
func TestOneVM(t *testing.T) {
	if r := finish(t, run(t, "--", "sh", "-c", "echo out; echo err >&2"), "").want(t, 0, "out\n", "err\n"); strings.Contains(r.out+r.err, "vm0") {
		t.Errorf("%+v", r)
	}
}

// A program that the VM's kernel kills since memory ran out: which VM that was, and what raises its memory.
func TestOutOfMemory(t *testing.T) {
	name := up(t, "--memory", "256MiB", "-q")
	const said = "nearmetal: vm0 ran out of memory, and its kernel killed a process: the VM has 256MiB (--memory raises that)\n"
	r := nm(t, "exec", name, "--", "sh", "-c", "tail /dev/zero").want(t, 137)
	if !strings.Contains(r.err, said) {
		t.Errorf("%+v", r)
	}
	if r := nm(t, "exec", name, "--", "sh", "-c", "kill -9 $$").want(t, 137); strings.Contains(r.err, "memory") {
		t.Errorf("a signal of its own: %+v", r)
	}
}

// A launcher only says that a signal ended a rank: which VM ran out of memory is said behind it, once.
func TestOutOfMemoryOfRank(t *testing.T) {
	needs(t, "mpirun.openmpi")
	const said = "nearmetal: vm1 ran out of memory, and its kernel killed a process: the VM has 256MiB (--memory raises that)\n"
	r := nm(t, "run", "-q", "--vms", "2", "--memory", "256MiB", "--", "mpirun.openmpi", "-n", "2", "sh", "-c",
		"[ $(hostname) = vm0 ] || exec tail /dev/zero; exec sleep 600")
	if r.code == 0 || strings.Count(r.err, said) != 1 || strings.Contains(r.err, "vm0 ran out of memory") {
		t.Errorf("%+v", r)
	}
}

// That VMs are emulated is no news to whoever asks for quiet; nor does the end of a cluster leave a shell behind that
// sends ranks into it, without a word.
func TestQuiet(t *testing.T) {
	loud := finish(t, run(t, "--no-home", "--", "true"), "").want(t, 0)
	r := finish(t, run(t, "-q", "--no-home", "--", "true"), "").want(t, 0)
	if r.err != "" {
		t.Errorf("run -q: %q; without: %q", r.err, loud.err)
	}
	name := up(t, "--memory", "256MiB", "-q")
	cmd := command(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `eval $("$0" env ` + name + `); "$0" down ` + name, nearmetal}
	finish(t, cmd, "").want(t, 0, "eval $(nearmetal env --unset)")
}

// Terminals of ssh-like tools often close standard output early.
func TestRunOutputClosed(t *testing.T) {
	cmd := exec.Command("sh", "-c", `"$0" run --memory 512MiB -- sh -c 'while echo y; do :; done' | head -1`, nearmetal)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil || string(out) != "y\n" {
		t.Errorf("%q, %v", out, err)
	}
	until(t, "the end of what was run", func() bool { return len(mine(cmd.Dir)) == 0 })
}

// mine are our processes whose working directory is dir.
func mine(dir string) []string {
	var list []string
	for _, pid := range ours() {
		if cwd, err := os.Readlink("/proc/" + pid + "/cwd"); err == nil && cwd == dir {
			list = append(list, pid)
		}
	}
	return list
}
