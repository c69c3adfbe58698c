package libvirt

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/process"
)

// TestVerdict compares the error for a VM's end with the reports of libvirtd and QEMU.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		how    daemon.End
		why    string
		killed bool
		want   string // a part of the error; empty: none
	}{
		{how: daemon.EndShutdown, why: "guest-shutdown"},
		{how: daemon.EndShutdown},
		{how: daemon.EndShutdown, why: "guest-reset", want: backend.ErrReset.Error()},
		{how: daemon.EndDestroyed, why: "host-signal", want: "somebody ended its domain"},
		{how: daemon.EndDestroyed, want: "somebody ended its domain"},
		// A virsh destroy whose daemon noticed QEMU's end first.
		{how: daemon.EndShutdown, why: "host-signal", want: "somebody ended its domain"},
		{how: daemon.EndDestroyed, why: "host-signal", killed: true},
		{how: daemon.EndFailed, want: "its QEMU was killed, or failed"},
		{how: daemon.EndOther, want: "migrated or saved"},
	} {
		i := &instance{heard: make(chan struct{}), stated: make(chan struct{}), killed: c.killed, ref: backend.Ref{ID: map[string]string{keyName: "n-vm0"}}}
		qemu := time.Duration(0)
		if c.why != "" {
			qemu = time.Minute
			go i.reason(c.why) // libvirtd's report may come first
		}
		i.said(c.how)
		i.hear(nil, time.Minute, qemu)
		switch err := i.verdict(); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c, err)
		}
	}
	i := &instance{heard: make(chan struct{})}
	gone := make(chan struct{})
	close(gone)
	i.hear(gone, time.Minute, time.Minute) // no daemon is left to report it
	if err := i.verdict(); err == nil || errors.Is(err, backend.ErrReset) {
		t.Errorf("a daemon that says nothing: %v", err)
	}
}

// TestKilledBefore: if another user killed a VM's QEMU, its end is not attributed to this driver, although the driver
// also kills it before libvirtd reports anything.
func TestKilledBefore(t *testing.T) {
	for _, before := range []bool{false, true} {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		start, err := process.Start(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		p, err := process.Find(cmd.Process.Pid, start)
		if err != nil {
			t.Fatal(err)
		}
		if before {
			cmd.Process.Kill()
			p.Wait() // it is not reaped yet
		}
		i := &instance{process: p}
		i.blame()
		if i.killed == before {
			t.Errorf("ended before: %v, killed by us: %v", before, i.killed)
		}
		cmd.Process.Kill()
		cmd.Wait()
		if !p.Ending() {
			t.Error("it has ended")
		}
		p.Close()
	}
}
