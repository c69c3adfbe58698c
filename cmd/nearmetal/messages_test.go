package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Messages name what the user typed and a next step, and no temporary name or system call.
func TestMessages(t *testing.T) {
	run, err := filepath.Abs("../../internal/bench/record/testdata/latency")
	if err != nil {
		t.Fatal(err)
	}
	enter(t, "testdata/files")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"cp", "vm0:/a", "vm1:/b"}, 2, "cp: exactly one of FROM and TO may be in a VM: copy vm0:/a to this host first"},
		{[]string{"cp", "a", "b"}, 2, "cp: neither a nor b is in a VM: write one of them as NAME:PATH or NAME/VM:PATH"},
		{[]string{"explain", "nope.xml"}, exitFailure, "nope.xml: no such file or directory"},
		{[]string{"topology", "--root", "nope"}, exitFailure, "topology: nope: no such file or directory"},
		{[]string{"plan", "-f", "nope.yaml"}, exitFailure, "cannot read the cluster file: nope.yaml: no such file or directory"},
		{[]string{"plan", "-f", "nope"}, exitFailure, "no cluster file or template \"nope\" (nearmetal spec templates)"},
		{[]string{"run", "--on", "kvm", "--", "x"}, 2, "--on: unknown backend \"kvm\" (have libvirt, openstack, qemu, vsphere); for KVM use --accel kvm"},
		{[]string{"restart", "demo"}, 2, "restart needs one VM: demo/vm0; for all: down, then up"},
		{[]string{"traffic", "nope"}, exitFailure, "nope: no such file or directory"},
		{[]string{"run", "--", "./nope"}, 127, "./nope: no such program on this host, whose files the VMs have"},
		{[]string{"report", run, "-o", "out.pdf"}, 2, "-o out.pdf: the page is HTML, so name it FILE.html; a directory that is to be made ends with /"},
		{[]string{"report", run, "-o", "none/out.html"}, exitFailure, "cannot write none/out.html: no such file or directory"},
		{[]string{"plan", "--svg", "none/plan.svg"}, exitFailure, "cannot write none/plan.svg: no such file or directory"},
		{[]string{"topology", "gather", "none/a.tar.gz"}, exitFailure, "cannot write none/a.tar.gz: no such file or directory"},
	} {
		var stdout, stderr bytes.Buffer
		status := execute(c.args, strings.NewReader(""), &stdout, &stderr)
		lines := strings.SplitAfter(stderr.String(), "\n")
		last := ""
		if len(lines) > 1 {
			last = lines[len(lines)-2]
		}
		if status != c.status || !strings.HasPrefix(last, "nearmetal: "+c.want) {
			t.Errorf("%q: status %d, %s", c.args, status, stderr.String())
		}
	}
}

// An error names the home of another user, which sudo leaves in HOME, if that causes it.
func TestOtherHome(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user's")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, owner := range []int{0, 12345} {
		if err := os.Chown(home, owner, -1); err != nil {
			t.Fatal(err)
		}
		for line, foreign := range map[string]bool{
			home + "/.config/nearmetal/config.yaml: permission denied":                                true,
			home + "/.config/x belongs to user 12345: it is read only where it is root's or your own": true,
			"/other/file: permission denied":                                                          false,
			home + "/x: no such file":                                                                 false,
		} {
			got := otherHome(line)
			if want := foreign && owner != 0; (got != "") != want || want && got != " (HOME="+home+" is the home of user 12345: sudo -H sets yours)" {
				t.Errorf("%s, home of %d: %q", line, owner, got)
			}
		}
	}
}

// A fix with --dry-run asks nothing and writes nothing.
func TestCheckDryRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := execute([]string{"check", "--fix", "--dry-run", "--for", "vm-host", "--only", "memory"}, strings.NewReader(""), &stdout, &stderr)
	said := strings.Contains(stdout.String(), "Would be written:") || strings.Contains(stdout.String(), "Nothing to write: ")
	if status != 0 || !said || strings.Contains(stdout.String(), "o be written now") || strings.Contains(stdout.String(), " written; ") {
		t.Errorf("%d: %s%s", status, stdout.String(), stderr.String())
	}
}
