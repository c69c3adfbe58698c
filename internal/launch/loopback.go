package launch

import "net"

// NeedsVM returns the reason why launcher l cannot run on this host and has to run in the first VM; empty: it can run
// here. addrs are the addresses of the host's interfaces that are up (net.InterfaceAddrs returns them).
//
// Open MPI 5's daemons crash if the launcher's host has only a loopback address (PRRTE 3.0.14: the host then has no
// aliases, and the list of all nodes' aliases that is sent to the daemons starts with an empty one).
func NeedsVM(l Launcher, addrs []net.Addr) string {
	if l.Library != OpenMPI || l.Major() < 5 {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return ""
		}
	}
	return "this host has no IPv4 address besides its loopback's, without which the daemons of " + l.String() + " crash"
}
