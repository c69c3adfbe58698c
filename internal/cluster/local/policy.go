package local

import (
	"os"

	"nearmetal/internal/guest"
)

// OwnPolicy returns what the cluster's VMs may ask of each other: programs as the user who owns the
// cluster, with this process's limits where no command of the user's said others.
func OwnPolicy() *guest.PeerPolicy {
	groups, _ := os.Getgroups()
	var list []uint32
	for _, g := range groups {
		list = append(list, uint32(g))
	}
	return guest.NewPeerPolicy(uint32(os.Getuid()), uint32(os.Getgid()), list, guest.Limits())
}
