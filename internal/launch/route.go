package launch

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// A launcher on the host passes to its daemons the address to call back: hydra its host's name, Open MPI the
// addresses of all interfaces. Neither is necessarily valid in a VM. The host's address on the uplink is always
// valid: it reaches a listener on any address, which all launchers open, also on a host that has only a loopback.
// Therefore the remote shell writes that address into the daemon's command line. Open MPI 5 needs this even if the
// host's own address is routed: it considers a private and a public address unreachable from each other, and selects
// the interface to bind by the netmask.

// hostAndPort matches the value of hydra's --control-port.
var hostAndPort = lazyregexp.New(`^("?)[^":\s]+:([0-9]{1,5})("?)$`)

// contact matches the value of Open MPI's …_hnp_uri and …_parent_uri: "JOB.0;tcp://A,B:PORT", followed by
// ":BITS,BITS" from Open MPI 5 on, then other addresses (tcp6).
var contact = lazyregexp.New(`^("?)([^;"\s]+);tcp://[0-9.,]+:([0-9]{1,5})(:[0-9,]+)?((?:;[^"\s]*)?)("?)$`)

// CallBack returns the words of a daemon's command with the launcher's addresses replaced by uplink: the host's
// address in the uplink's subnet, with the prefix length (10.0.2.2/24). An interface of the host that hydra passes on
// (HYDRA_IFACE) is replaced by iface, the VMs' own. Other words and unknown forms are unchanged.
func CallBack(words []string, uplink netip.Prefix, iface string) []string {
	out := make([]string, len(words))
	copy(out, words)
	addr := uplink.Addr().String()
	for i := 1; i < len(out); i++ {
		switch strings.Trim(out[i-1], `"`) {
		case "--control-port", "-control-port":
			if m := hostAndPort().FindStringSubmatch(out[i]); m != nil {
				out[i] = fmt.Sprintf("%s%s:%s%s", m[1], addr, m[2], m[3])
			}
		case "--iface", "-iface":
			out[i] = iface
		case "--upstream-host", "-upstream-host": // Intel MPI
			out[i] = addr
		case "orte_hnp_uri", "orte_parent_uri", "prte_hnp_uri", "prte_parent_uri":
			if m := contact().FindStringSubmatch(out[i]); m != nil {
				bits := ""
				if m[4] != "" {
					bits = fmt.Sprintf(":%d", uplink.Bits())
				}
				out[i] = fmt.Sprintf("%s%s;tcp://%s:%s%s%s", m[1], m[2], addr, m[3], bits, m[6])
			}
		}
	}
	return out
}

// CallBackPorts returns the launcher's ports in a daemon's command, to which it will call back. An unknown form has
// none.
func CallBackPorts(words []string) []uint16 {
	var ports []uint16
	add := func(text string) {
		if n, err := strconv.ParseUint(strings.Trim(text, `"`), 10, 16); err == nil && n > 0 && !slices.Contains(ports, uint16(n)) {
			ports = append(ports, uint16(n))
		}
	}
	for i := 1; i < len(words); i++ {
		switch strings.Trim(words[i-1], `"`) {
		case "--control-port", "-control-port":
			if m := hostAndPort().FindStringSubmatch(words[i]); m != nil {
				add(m[2])
			}
		case "--upstream-port", "-upstream-port": // Intel MPI
			add(words[i])
		case "orte_hnp_uri", "orte_parent_uri", "prte_hnp_uri", "prte_parent_uri":
			if m := contact().FindStringSubmatch(words[i]); m != nil {
				add(m[3])
			}
		}
	}
	return ports
}
