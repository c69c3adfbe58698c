package local

import (
	"os"

	"nearmetal/internal/guest"
)

// OwnPolicy returns the policy for requests between the cluster's VMs: they may run programs as the user who owns the
// cluster, with this process's limits unless a command of the user has set others.
func OwnPolicy() *guest.PeerPolicy {
	groups, _ := os.Getgroups()
	var list []uint32
	for _, g := range groups {
		list = append(list, uint32(g))
	}
	return guest.NewPeerPolicy(uint32(os.Getuid()), uint32(os.Getgid()), list, guest.Limits())
}
