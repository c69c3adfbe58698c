package state

import (
	"slices"

	"nearmetal/internal/load"
)

// Usage reads the resource usage of the cluster's VMs on this host; with nodes also the NUMA nodes of their memory.
func (r *Record) Usage(nodes bool) []load.VM {
	list := []load.VM{}
	for _, v := range r.VMs {
		u := load.VM{Cluster: r.Name, Name: v.Name, State: string(v.State), VCPUs: v.VCPUs}
		if r.Paused && v.State == Ready {
			u.State = "paused"
		}
		if v.PID != 0 && u.Read("/", v.PID) {
			if nodes {
				u.ReadNodes("/", v.PID)
			}
			// All VMs share one region.
			if k := slices.IndexFunc(list, func(x load.VM) bool { return x.Region != nil }); k >= 0 {
				u.Region = list[k].Region
			} else {
				u.ReadRegion("/", v.PID)
			}
		}
		list = append(list, u)
	}
	return list
}
