package host

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Accel is the way in which a VM's instructions run.
type Accel string

const (
	KVM Accel = "kvm" // hardware virtualization
	TCG Accel = "tcg" // QEMU's emulation: works everywhere, timings are meaningless
)

// probeTimeout bounds the run of the KVM probe's few instructions.
const probeTimeout = 2 * time.Second

// DetectAccel returns the accelerator for want, which is "auto" (or empty), "kvm" or "tcg". reason is one line for
// the user; it is empty if KVM works or TCG was requested. DetectAccel fails, with the cause, if KVM is requested and
// does not work.
func DetectAccel(want string) (accel Accel, reason string, err error) {
	return Host{}.DetectAccel(want)
}

// DetectAccel is the function DetectAccel, below h.Root.
func (h Host) DetectAccel(want string) (accel Accel, reason string, err error) {
	switch want {
	case "tcg":
		return TCG, "", nil
	case "", "auto", "kvm":
	default:
		return "", "", fmt.Errorf("accel %q: not one of auto, kvm, tcg", want)
	}
	why := h.kvmBroken()
	if why == nil {
		return KVM, "", nil
	}
	if want == "kvm" {
		return "", "", fmt.Errorf("accel kvm: %w", why)
	}
	return TCG, why.Error() + ": using TCG (emulation): timings are not meaningful", nil
}

// kvmBroken returns the reason why KVM cannot run a VM here, or nil. The existence of /dev/kvm proves nothing: it
// exists on machines on which only paravirtual guests run.
func (h Host) kvmBroken() error {
	if ok, err := h.hardwareVirt(); err != nil {
		return err
	} else if !ok {
		return errors.New("no vmx or svm in /proc/cpuinfo")
	}
	dev, err := os.OpenFile(h.path("/dev/kvm"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("no /dev/kvm (load the module kvm_intel or kvm_amd, or switch virtualization on in the firmware)")
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("/dev/kvm: %w (be a member of the group kvm)", os.ErrPermission)
	case err != nil:
		return fmt.Errorf("/dev/kvm: %w", errors.Unwrap(err))
	}
	if err := inTime(2*probeTimeout, func() error {
		defer dev.Close()
		return probeKVM(dev, probeTimeout)
	}); err != nil {
		return fmt.Errorf("/dev/kvm is there but runs no VM (%w)", err)
	}
	return nil
}

// inTime returns f's result, or an error if f takes longer than limit. f then continues in the background, because a
// kernel call that does not return cannot be ended.
func inTime(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("it did not answer within %s", limit)
	}
}

// hardwareVirt reports whether the CPU has VT-x or AMD-V.
func (h Host) hardwareVirt() (bool, error) {
	flags, err := h.cpuFlags()
	if err != nil {
		return false, err
	}
	return flags["vmx"] || flags["svm"], nil
}
