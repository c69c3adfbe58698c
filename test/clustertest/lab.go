// Package clustertest is for tests of a cluster's life, on VMs that are processes (backend/fake): real agents, a real channel,
// control socket, record and journal.
package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/fake"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/spec"
)

// Patience bounds a wait on a busy machine; on an idle one it is milliseconds.
const Patience = time.Minute

// Lab is a directory of clusters and one of fake VMs.
type Lab struct {
	// Base is the directory of clusters, O what the hypervisor can do.
	Base string
	O    fake.Options
	t    *testing.T
}

// New returns a lab in new directories. The test is skipped where VMs cannot be processes, and fails at its end if anything is left.
func New(t *testing.T) *Lab {
	t.Helper()
	if err := fake.Works(); err != nil {
		if os.Getenv("CI") != "" && !errors.Is(err, fake.ErrUser) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// Not of t.TempDir: a control socket's path is short.
	dir, err := os.MkdirTemp("", "nm-life")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	t.Setenv("NEARMETAL_CLUSTER", "")
	l := &Lab{t: t, Base: dir, O: fake.Options{Dir: t.TempDir()}}
	t.Cleanup(l.Empty)
	return l
}

// Spec is a cluster file of n VMs as the commands hand it on.
func (l *Lab) Spec(n int) *spec.Cluster {
	c := &spec.Cluster{Name: "life", Backend: l.O.Name(), VMs: []spec.Group{{Name: "vm", Count: n, VCPUs: 1, Memory: 128 << 20}}}
	spec.Defaults(c)
	if err := spec.Validate(c); err != nil {
		l.t.Fatal(err)
	}
	return c
}

// Made returns the VMs that the hypervisor has.
func (l *Lab) Made() []string {
	l.t.Helper()
	list, err := os.ReadDir(l.O.Dir)
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// Empty fails if anything is left: a VM, its process, or a cluster's directory.
func (l *Lab) Empty() {
	l.t.Helper()
	if made := l.Made(); len(made) > 0 {
		l.t.Errorf("left behind: %q", made)
	}
	if dirs, _ := filepath.Glob(filepath.Join(l.Base, "[^.]*")); len(dirs) > 0 {
		l.t.Errorf("left behind: %q", dirs)
	}
}

// PIDs returns the processes of a cluster's VMs.
func PIDs(r state.Record) (list []int) {
	for _, v := range r.VMs {
		list = append(list, v.PID)
	}
	return list
}

// Gone fails unless the processes end.
func Gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(Patience.Milliseconds()))
		unix.Close(fd)
		if n != 1 {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// Await receives from c within the test's Patience.
func Await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatalf("%s did not come", what)
	}
	return v
}

// ProcessState returns the state of a process: S, T, …
func ProcessState(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b[bytes.LastIndexByte(b, ')')+2])
}

// Stop stops a process that may be busy, and waits until it has stopped. It is not a child of the test:
// there is nothing but its state to wait for.
func Stop(t *testing.T, pid int) {
	t.Helper()
	unix.Kill(pid, unix.SIGSTOP)
	for end := time.Now().Add(Patience); ProcessState(t, pid) != "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}
