package host

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Accel is how a VM's instructions run.
type Accel string

const (
	KVM Accel = "kvm" // hardware virtualization
	TCG Accel = "tcg" // QEMU's emulation: works everywhere, timings mean nothing
)

// probeTimeout bounds the run of the KVM probe's few instructions.
const probeTimeout = 2 * time.Second

// DetectAccel returns the accelerator for want, which is "auto" (or empty), "kvm" or "tcg".
// reason is one line for the user, and is empty where there is nothing to say (KVM works, or TCG was asked for).
// It fails when KVM is asked for and does not work, saying why.
func DetectAccel(want string) (accel Accel, reason string, err error) {
	return Host{}.DetectAccel(want)
}

// DetectAccel is the function of that name, below h.Root.
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

// kvmBroken says why KVM cannot run a VM here, or returns nil. /dev/kvm alone proves
// nothing: it exists on machines where only paravirtual guests run.
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

// inTime returns what f returns, or an error if that takes longer than limit. Then f goes on by itself: a call of the kernel
// that does not return cannot be ended.
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

// hardwareVirt says whether the CPU shows VT-x or AMD-V.
func (h Host) hardwareVirt() (bool, error) {
	flags, err := h.cpuFlags()
	if err != nil {
		return false, err
	}
	return flags["vmx"] || flags["svm"], nil
}
