package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Where /run is mounted with noexec, as in Debian's images, programs can be started in nearmetal's own folder all the same; where it
// is not, nothing is mounted.
func TestExecutable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a mount")
	}
	for _, flags := range []uintptr{unix.MS_NOEXEC, 0} {
		run := t.TempDir()
		if err := unix.Mount("tmpfs", run, "tmpfs", flags, "mode=755"); err != nil {
			t.Skipf("no mounts here: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(run, unix.MNT_DETACH) })
		dir := filepath.Join(run, "nearmetal")
		for range 2 { // an agent that is started again finds it done
			if err := executable(dir); err != nil {
				t.Fatal(err)
			}
		}
		program := filepath.Join(dir, "program")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		mounted := unix.Unmount(dir, unix.MNT_DETACH) == nil
		if want := flags != 0; mounted != want {
			t.Errorf("mounted: %v, want %v", mounted, want)
		}
	}
}
