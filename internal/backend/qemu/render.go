package qemu

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
	"nearmetal/internal/text"
)

// note precedes command lines, which are not usable in a shell as they are.
const note = `# What the plan decides. These lines are not complete: when nearmetal starts a VM, it adds
#   -fsdev and -device virtio-9p-pci for the root and for each share, or, with files: virtiofs, a virtiofsd with
#   -chardev and -device vhost-user-fs-pci for each, and memory that it shares with that,
#   -netdev and -device virtio-net-pci for the VMs' network and the uplink,
#   what fd=N and /proc/self/fd/N name: the monitor, the console, the agent's channel, the kernel,
#   the initramfs and the region, which are open files of its own,
#   and the CPUs of the threads, where they are pinned (see nearmetal plan).
`

// Render writes each VM's QEMU command line for the QEMU that Probe found, preceded by a note on the parts that are
// missing.
func (d *driver) Render(w io.Writer, vms []plan.VM, s backend.Settings) error {
	if _, err := io.WriteString(w, note); err != nil {
		return err
	}
	for i := range vms {
		m, err := Build(vms[i], s, d.caps)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "# %s on %s\n", vms[i].Name, vms[i].Host)
		for k, arg := range m.Args() {
			switch {
			case k == 0:
			case strings.HasPrefix(arg, "-"):
				io.WriteString(w, " \\\n  ")
			default:
				io.WriteString(w, " ")
			}
			io.WriteString(w, text.Shell(arg))
		}
		fmt.Fprintln(w)
	}
	return nil
}

var versionLine = regexp.MustCompile(`version (\S+)`)

// Version returns the version and the path of the QEMU that VMs run with.
func (d *driver) Version(ctx context.Context) (string, error) {
	path, err := Find("")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if m := versionLine.FindSubmatch(out); m != nil {
		return fmt.Sprintf("%s (%s)", m[1], path), nil
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return fmt.Sprintf("%s (%s)", line, path), nil
}
