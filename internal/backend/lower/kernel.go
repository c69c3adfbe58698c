package lower

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/host"
)

// KernelArgs describes the command line of a kernel that is booted directly.
type KernelArgs struct {
	Accel  host.Accel
	TSCKHz int // the guest's TSC rate, which is the host's; 0: not known
	// Passthrough: the VM has devices of the host, which may not reach all of its memory by DMA.
	Passthrough bool
	Extra       []string // added at the end
}

// maxKernelArgs is the x86 kernel's COMMAND_LINE_SIZE less the NUL.
const maxKernelArgs = 2047

// Valid returns an error for arguments that no kernel accepts.
func (k KernelArgs) Valid() error {
	for _, a := range k.Extra {
		for _, c := range a {
			if c < ' ' || c == 0x7f {
				return fmt.Errorf("kernel argument %.60q: control characters", a)
			}
		}
	}
	if n := len(k.String()); n > maxKernelArgs {
		return fmt.Errorf("the kernel's command line has %d bytes: at most %d", n, maxKernelArgs)
	}
	if k.TSCKHz < 0 {
		return errors.New("a TSC rate below 0")
	}
	return nil
}

// noInit are initcalls that are slow under TCG and that nearmetal's VMs do not need.
var noInit = []string{
	"init_kprobe_trace", "crypto_kdf108_init", "load_system_certificate_list", "init_zswap",
	"init_trace_printk_function_export", "init_encrypted", "init_evm", "init_ima",
}

// String returns the command line.
func (k KernelArgs) String() string {
	// panic=-1 with -no-reboot ends a VM at once when its kernel panics.
	args := []string{"console=ttyS0", "quiet", "panic=-1", "net.ifnames=0"}
	if !k.Passthrough && !slices.ContainsFunc(k.Extra, func(a string) bool { return strings.HasPrefix(a, "swiotlb=") }) {
		// Where memory lies above 4 GiB, Linux sets 64 MiB aside for devices that reach only 32 bits. Virtio devices
		// reach all.
		args = append(args, "swiotlb=noforce")
	}
	if k.Accel == host.TCG {
		args = append(args, "mitigations=off", "cryptomgr.notests", "rodata=off")
		if k.TSCKHz > 0 {
			// Under TCG the guest's TSC is the host's. Without its rate the kernel measures it against emulated
			// timers.
			args = append(args, fmt.Sprintf("tsc_early_khz=%d", k.TSCKHz), "tsc=reliable")
		}
		args = append(args, "no_timer_check", "random.trust_cpu=on", "audit=0", "lsm=", "noreplace-smp",
			"8250.nr_uarts=1", "initcall_blacklist="+strings.Join(noInit, ","))
	}
	return strings.Join(append(args, k.Extra...), " ")
}

// TCGCode is the size of TCG's buffer of translated code, in MiB. The default is up to 1 GiB.
const TCGCode = 64
