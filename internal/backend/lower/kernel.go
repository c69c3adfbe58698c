package lower

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/host"
)

// KernelArgs is the command line of a kernel that is started directly.
type KernelArgs struct {
	Accel  host.Accel
	TSCKHz int // the host's TSC rate, which the guest has; 0: not known
	// Passthrough: the VM has devices of the host, which may not reach all of its memory by DMA.
	Passthrough bool
	Extra       []string // added at the end
}

// maxKernelArgs is the x86 kernel's COMMAND_LINE_SIZE less the NUL.
const maxKernelArgs = 2047

// Valid fails for what no kernel takes.
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

// noInit are initcalls that take time under TCG and do nothing that a VM of ours needs.
var noInit = []string{
	"init_kprobe_trace", "crypto_kdf108_init", "load_system_certificate_list", "init_zswap",
	"init_trace_printk_function_export", "init_encrypted", "init_evm", "init_ima",
}

// String is the command line.
func (k KernelArgs) String() string {
	// panic=-1 with -no-reboot: a VM whose kernel panics ends at once.
	args := []string{"console=ttyS0", "quiet", "panic=-1", "net.ifnames=0"}
	if !k.Passthrough && !slices.ContainsFunc(k.Extra, func(a string) bool { return strings.HasPrefix(a, "swiotlb=") }) {
		// Where memory lies above 4 GiB, Linux sets 64 MiB aside for devices that reach only 32 bits. Virtio devices
		// reach all.
		args = append(args, "swiotlb=noforce")
	}
	if k.Accel == host.TCG {
		args = append(args, "mitigations=off", "cryptomgr.notests", "rodata=off")
		if k.TSCKHz > 0 {
			// The guest's TSC under TCG is the host's. Without its rate the kernel measures it, against emulated timers.
			args = append(args, fmt.Sprintf("tsc_early_khz=%d", k.TSCKHz), "tsc=reliable")
		}
		args = append(args, "no_timer_check", "random.trust_cpu=on", "audit=0", "lsm=", "noreplace-smp",
			"8250.nr_uarts=1", "initcall_blacklist="+strings.Join(noInit, ","))
	}
	return strings.Join(append(args, k.Extra...), " ")
}

// TCGCode is the size of TCG's buffer of translated code, in MiB. Left alone it takes up to 1 GiB.
const TCGCode = 64
