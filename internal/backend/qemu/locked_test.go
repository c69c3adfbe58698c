package qemu

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/plan"
)

// withDevice returns a plan of two VMs, one with a device.
func withDevice() *plan.Plan {
	return &plan.Plan{Region: &plan.Region{SizeBytes: 64 * mib}, VMs: []plan.VM{
		{Name: "vm0", MemoryBytes: 256 * mib, Devices: []plan.Device{{Address: "0000:41:10.0"}}},
		{Name: "vm1", MemoryBytes: 4096 * mib},
		{Name: "vm2", MemoryBytes: 128 * mib, Devices: []plan.Device{{Address: "0000:41:10.2"}}},
	}}
}

// TestLockedBytes: a VM with a device locks its memory, the region and the slack; one without locks nothing.
func TestLockedBytes(t *testing.T) {
	need, all, who := lockedBytes(withDevice())
	if need != 384*mib || all != 640*mib || who != "vm0" {
		t.Errorf("%d of %s, %d of all", need, who, all)
	}
	p := withDevice()
	p.Region = nil
	if need, _, _ := lockedBytes(p); need != 320*mib {
		t.Errorf("%d without a region", need)
	}
	if need, _, _ := lockedBytes(&plan.Plan{VMs: p.VMs[1:2]}); need != 0 {
		t.Errorf("%d without devices", need)
	}
}

func TestLockedLimit(t *testing.T) {
	const need = 384 * mib
	for _, tt := range []struct{ soft, hard, want uint64 }{
		{need, need, need}, {need - 1, need - 1, need - 1}, {0, need - 1, 0}, {mib, need, need}, {mib, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
		{2 * need, unix.RLIM_INFINITY, 2 * need}, {unix.RLIM_INFINITY, unix.RLIM_INFINITY, unix.RLIM_INFINITY},
	} {
		if got := lockedLimit(unix.Rlimit{Cur: tt.soft, Max: tt.hard}, need); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// limited marks the test's program as the one whose limit is lowered.
const limited = "NEARMETAL_TEST_LOCKED"

// TestCheckLocked: a process without privileges and with a low limit gets an error with its needs before anything
// starts.
func TestCheckLocked(t *testing.T) {
	if os.Getenv(limited) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCheckLocked$", "-test.v")
		cmd.Env = append(os.Environ(), limited+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	dropLockAll(t)
	err := checkLocked(withDevice())
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "is 64KiB") || !strings.Contains(err.Error(), "384MiB for vm0, 640MiB for all VMs") {
		t.Errorf("%v", err)
	}
	if err := checkLocked(&plan.Plan{VMs: withDevice().VMs[1:2]}); err != nil {
		t.Errorf("without devices: %v", err)
	}
}

// dropLockAll drops CAP_IPC_LOCK from this thread, to which the test is locked.
func dropLockAll(t *testing.T) {
	runtime.LockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&head, &data[0])
	if err == nil {
		data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		err = unix.Capset(&head, &data[0])
	}
	if err != nil {
		t.Fatal(err)
	}
}
