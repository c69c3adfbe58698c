package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A domain is explained from a file, and fixed into a new one, which nothing overwrites.
func TestExplain(t *testing.T) {
	const nasa = "../../internal/explain/testdata/nasa-at5.xml"
	on := []string{"--host", "../../test/topology/c6100.machine"}
	out, err := command(t, newExplainCommand, append(on, nasa)...)
	if err == nil || !strings.Contains(out, "memory.bound: cell 0 is bound to no node") {
		t.Fatalf("%v: %s", err, out)
	}
	fixed := filepath.Join(t.TempDir(), "fixed.xml")
	out, err = command(t, newExplainCommand, append(on, "--fix", fixed, nasa)...)
	if err != nil || !strings.Contains(out, "fixed memory.bound\n") || !strings.Contains(out, "left  cpu.emulator: fewer vCPUs") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err = command(t, newExplainCommand, append(on, "--problems", fixed)...); err != nil || strings.Contains(out, "fail") {
		t.Errorf("%v: %s", err, out)
	}
	before, _ := os.ReadFile(fixed)
	if _, err = command(t, newExplainCommand, append(on, "--fix", fixed, nasa)...); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(fixed); string(after) != string(before) {
		t.Error("it was overwritten")
	}
	for _, c := range [][]string{{}, {nasa, nasa}, {"--json", "--fix", "x", nasa}} {
		if _, err := command(t, newExplainCommand, c...); err == nil {
			t.Errorf("%q was taken", c)
		}
	}
	for name, want := range map[string]string{"/dev/null": "is not a file", "/nonexistent": "no such file", on[1]: "no XML"} {
		if _, err := command(t, newExplainCommand, append(on, name)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// A name that is neither a file nor, without libvirtd, a domain gives a one-line error with a next step.
func TestExplainNothing(t *testing.T) {
	t.Setenv("LIBVIRT_DEFAULT_URI", "qemu:///system?socket=/nonexistent/libvirt-sock")
	_, err := command(t, newExplainCommand, "--host", "../../test/topology/c6100.machine", "foo")
	if err == nil || !strings.HasPrefix(err.Error(), "foo: not a file, and libvirtd is not running (systemctl start libvirtd") {
		t.Errorf("%v", err)
	}
}
