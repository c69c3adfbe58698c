package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
		return errors.New("/dev/kvm: permission denied (be a member of the group kvm)")
	case err != nil:
		return fmt.Errorf("/dev/kvm: %w", errors.Unwrap(err))
	}
	defer dev.Close()
	if err := probeKVM(dev, probeTimeout); err != nil {
		return fmt.Errorf("/dev/kvm is there but runs no VM (%w)", err)
	}
	return nil
}

// hardwareVirt says whether the CPU shows VT-x or AMD-V.
func (h Host) hardwareVirt() (bool, error) {
	flags, err := h.cpuFlags()
	if err != nil {
		return false, err
	}
	return flags["vmx"] || flags["svm"], nil
}

// SlowStrings reports whether the C library's memcpy is slow on this machine's CPU where it takes `rep movsb`, as it does if
// the CPU says that it has fast string instructions (erms): on AMD's Zen 3 and Zen 4, family 25 (glibc bug 30994). Between two
// cores 8 KiB in a row had 8 to 24 GB/s with it and 22 to 25 without: medians of five batches each (UCX, docs/ucx.md).
func SlowStrings() bool { return Host{}.SlowStrings() }

// SlowStrings is the function of that name, below h.Root.
func (h Host) SlowStrings() bool {
	cpu, err := h.cpuFields("vendor_id", "cpu family", "flags")
	return err == nil && cpu["vendor_id"] == "AuthenticAMD" && cpu["cpu family"] == "25" && slices.Contains(strings.Fields(cpu["flags"]), "erms")
}

// cpuFlags are the first CPU's flags in /proc/cpuinfo.
func (h Host) cpuFlags() (map[string]bool, error) {
	cpu, err := h.cpuFields("flags")
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, name := range strings.Fields(cpu["flags"]) {
		set[name] = true
	}
	return set, nil
}

// cpuFields are the first CPU's fields of these names in /proc/cpuinfo, as far as it has them.
func (h Host) cpuFields(names ...string) (map[string]string, error) {
	f, err := os.Open(h.path("/proc/cpuinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fields := map[string]string{}
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 0, 16<<10), 1<<20)
	for sc.Scan() && len(fields) < len(names) {
		key, val, ok := strings.Cut(sc.Text(), ":")
		if key = strings.TrimSpace(key); ok && slices.Contains(names, key) {
			fields[key] = strings.TrimSpace(val)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("/proc/cpuinfo: %w", err)
	}
	return fields, nil
}
