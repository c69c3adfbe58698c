package qemu

import (
	"fmt"

	"nearmetal/internal/backend/lower"
)

// kernel is the kernel that the VM boots, without a boot loader.
type kernel struct {
	FD       int    // of the kernel
	InitrdFD int    // of the initramfs
	Firmware string // path; empty: QEMU's default, SeaBIOS
	Line     lower.KernelArgs
}

func (k kernel) Valid() error {
	if k.FD < firstFD || k.InitrdFD < firstFD {
		return fmt.Errorf("kernel: %w", errNoFD)
	}
	return k.Line.Valid()
}

func (k kernel) Args() []string {
	var args []string
	if k.Firmware != "" {
		args = append(args, "-bios", k.Firmware)
	}
	return append(args, "-kernel", fdPath(k.FD), "-initrd", fdPath(k.InitrdFD), "-append", k.Line.String())
}
