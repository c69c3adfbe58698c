package qemu

import (
	"fmt"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
)

// BareArgs returns the shortest fast QEMU command line under TCG, with its console in a file: no channel, no exports,
// no network. `make bench-boot` compares nearmetal's own boot with it. vmlinux must have a PVH entry.
func BareArgs(caps Caps, vmlinux, initrd, serialFile string, memoryMiB, tscKHz int) []string {
	line := lower.KernelArgs{Accel: host.TCG, TSCKHz: tscKHz}
	args := []string{caps.Path}
	args = append(args, machineType{Off: caps.MachineProps}.Args()...)
	args = append(args, accelerator{Accel: host.TCG}.Args()...)
	if caps.Qboot != "" {
		args = append(args, "-bios", caps.Qboot)
	}
	return append(args, "-smp", "1,maxcpus=2", "-m", fmt.Sprint(memoryMiB), "-display", "none", "-nodefaults",
		"-no-user-config", "-no-reboot", "-serial", option("file:"+serialFile), "-kernel", vmlinux, "-initrd", initrd,
		"-append", line.String())
}
