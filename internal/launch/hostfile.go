package launch

import (
	"fmt"
	"net/netip"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// Host is one VM as a launcher sees it.
type Host struct {
	Name  string     // 1 to 63 letters, digits and hyphens
	IP    netip.Addr // address in the VMs' network
	Slots int        // number of ranks for which it has a vCPU, at least 1
}

// Formats are the formats of Hostfile.
var Formats = []string{"openmpi", "mpich", "slurm", "pdsh"}

var hostName = lazyregexp.New(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// CheckHosts returns an error if a launcher on the host called hostname cannot use the hosts. Launchers start
// processes on "their own host" without a remote shell: a VM with the host's name would silently get no ranks.
func CheckHosts(hosts []Host, hostname string) error {
	own, _, _ := strings.Cut(hostname, ".")
	for _, h := range hosts {
		if !hostName().MatchString(h.Name) {
			return fmt.Errorf("VM name %q: letters, digits and hyphens, at most 63", h.Name)
		}
		if strings.EqualFold(h.Name, own) || strings.EqualFold(h.Name, "localhost") {
			return fmt.Errorf("the VM %s has the name of this host: an MPI launcher would run its ranks on the host; give the VMs another name (vms: - name: …)", h.Name)
		}
		if h.Slots < 1 {
			return fmt.Errorf("the VM %s has %d slots; at least 1", h.Name, h.Slots)
		}
	}
	return nil
}

// Hostfile returns the hosts in one of Formats: openmpi (--hostfile), mpich (-f; also read by Intel MPI and MVAPICH),
// slurm (SLURM_HOSTFILE for --distribution=arbitrary: one line per task), pdsh (WCOLL, also for any program that
// expects one name per line).
func Hostfile(hosts []Host, format string) (string, error) {
	return hostfile(hosts, format, func(h Host) string { return h.Name })
}

// AddressHostfile returns Hostfile's result with addresses instead of names, for a launcher that looks each name up
// on the host, where the VMs' names are not known.
func AddressHostfile(hosts []Host, format string) (string, error) {
	return hostfile(hosts, format, func(h Host) string { return h.IP.String() })
}

func hostfile(hosts []Host, format string, name func(Host) string) (string, error) {
	var b strings.Builder
	for _, h := range hosts {
		n := name(h)
		switch format {
		case "openmpi":
			fmt.Fprintf(&b, "%s slots=%d\n", n, h.Slots)
		case "mpich":
			fmt.Fprintf(&b, "%s:%d\n", n, h.Slots)
		case "slurm":
			b.WriteString(strings.Repeat(n+"\n", max(h.Slots, 1)))
		case "pdsh":
			b.WriteString(n + "\n")
		default:
			return "", fmt.Errorf("host file format %q: one of %s", format, strings.Join(Formats, ", "))
		}
	}
	return b.String(), nil
}
