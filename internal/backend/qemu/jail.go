package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/plan"
)

// With isolation: strict, QEMU runs in a jail (docs/security.md) that contains only the files that QEMU reads and
// opens. The user network, which needs the host's, is a process of its own (uplink.go).

// jailing holds the inputs for the jail of a VM's QEMU.
type jailing struct {
	kvm      bool
	devices  []plan.Device
	firmware string              // path; "": QEMU's own
	write    []bool              // by slot: a guest may write there
	change   func(*isolate.Jail) // for tests; nil: nothing
}

// jailing returns the VM's jailing.
func (m *Machine) jailing(vm plan.VM, s backend.Settings, caps Caps) *jailing {
	j := &jailing{kvm: s.Accel == host.KVM, devices: vm.Devices, firmware: firmware(vm, s, caps)}
	for _, x := range m.slots {
		write := x.kind == slotRegion
		if x.kind == slotExport {
			write = !s.Exports[m.exportOf(x.index, s.Exports)].ReadOnly
		}
		j.write = append(j.write, write)
	}
	return j
}

// exportOf returns the index of the n-th veiled export.
func (m *Machine) exportOf(n int, exports []backend.Export) int {
	for i, e := range exports {
		if e.Veiled {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return -1
}

// jail makes the jail of m's QEMU; nil: no jail.
func (m *Machine) jail(files []*os.File, cgroup *os.File) (*isolate.Jail, error) {
	if m.jailed == nil {
		return nil, nil
	}
	j, err := qemuJail(m.path, cgroup)
	if err != nil {
		return nil, err
	}
	if m.jailed.kvm {
		j.Binds = append(j.Binds, isolate.Bind{Path: "/dev/kvm", Device: true})
	}
	if m.jailed.firmware != "" {
		j.Binds = append(j.Binds, isolate.Bind{Path: filepath.Dir(m.jailed.firmware)})
	}
	if len(m.jailed.devices) > 0 {
		binds, err := vfioBinds(m.jailed.devices)
		if err != nil {
			return nil, err
		}
		j.Binds, j.LockMemory = append(j.Binds, binds...), true
	}
	reopened := []slotKind{slotKernel, slotInitrd, slotRegion, slotExport}
	for i, f := range files {
		j.Files = append(j.Files, isolate.JailFile{File: f, Reopen: slices.Contains(reopened, m.slots[i].kind), Write: m.jailed.write[i]})
	}
	if m.jailed.change != nil {
		m.jailed.change(j)
	}
	return j, nil
}

// qemuJail returns a jail with the files that any QEMU needs.
func qemuJail(path string, cgroup *os.File) (*isolate.Jail, error) {
	j := &isolate.Jail{Cgroup: cgroup}
	if p := os.Getenv("LD_LIBRARY_PATH"); p != "" {
		j.Env = append(j.Env, "LD_LIBRARY_PATH="+p)
	}
	var err error
	if j.Binds, err = isolate.Needs(path, j.Env); err != nil {
		return nil, fmt.Errorf("isolation=strict: cannot find out what QEMU needs: %w", err)
	}
	// Directories where distributions and local builds install firmware and modules.
	prefix := filepath.Dir(filepath.Dir(path))
	for _, dir := range []string{"share/qemu", "share/qemu-kvm", "share/seabios", "share/qboot", "lib/x86_64-linux-gnu/qemu", "lib/qemu", "lib64/qemu", "lib64/qemu-kvm"} {
		j.Binds = append(j.Binds, isolate.Bind{Path: filepath.Join(prefix, dir), Optional: true})
	}
	j.Binds = append(j.Binds, isolate.Bind{Path: "/sys/devices/system", Optional: true})
	return j, nil
}

// vfioBinds returns the files that QEMU opens for functions of the host: those of their groups, and their entries in
// sysfs.
func vfioBinds(devices []plan.Device) ([]isolate.Bind, error) {
	binds := []isolate.Bind{
		{Path: "/dev/vfio/vfio", Device: true}, {Path: "/sys/bus/pci"}, {Path: "/sys/devices"}, {Path: "/sys/kernel/iommu_groups"},
	}
	for _, d := range devices {
		group, err := os.Readlink("/sys/bus/pci/devices/" + d.Address + "/iommu_group")
		if err != nil {
			return nil, fmt.Errorf("device %s: its IOMMU group: %w", d.Address, plainError(err))
		}
		file := "/dev/vfio/" + filepath.Base(group)
		if !slices.ContainsFunc(binds, func(b isolate.Bind) bool { return b.Path == file }) {
			binds = append(binds, isolate.Bind{Path: file, Device: true})
		}
	}
	return binds, nil
}

// strictError reports that the promises of isolation: strict cannot be kept.
func strictError(err error) error {
	var no *isolate.NoNamespace
	if errors.As(err, &no) {
		return fmt.Errorf("isolation: strict is not available: %w; nearmetal check --only limits.userns shows what to change", err)
	}
	return fmt.Errorf("isolation: strict is not available: %w", err)
}
