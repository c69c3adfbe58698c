package carry

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Where /run is mounted with noexec, as in Debian's images, programs can be started in nearmetal's own directory all the same; where it
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

// The agent is where launchers look for it, and the VMs' names follow those of the VM's own hosts file.
func TestPutAgent(t *testing.T) {
	dir := t.TempDir()
	agent, hosts := filepath.Join(dir, "bin", "rsh"), filepath.Join(dir, "hosts")
	if err := PutAgent(dir, agent, []byte("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(agent); err != nil || st.Mode().Perm()&0o111 == 0 {
		t.Errorf("%v, %v", st, err)
	}
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, lines := range [][]string{nil, {"10.0.0.1 vm0", "10.0.0.2 vm1"}} {
		if err := AddHosts(hosts, lines); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(hosts); err != nil || string(b) != "127.0.0.1 localhost\n# nearmetal's cluster\n10.0.0.1 vm0\n10.0.0.2 vm1\n" {
		t.Errorf("%q, %v", b, err)
	}
}
