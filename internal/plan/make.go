package plan

import (
	"errors"
	"fmt"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Make decides where the VMs of a cluster file run. The file has its defaults
// filled in; hosts is at least one; the ledger is what runs already. An error
// says which resource is short, where, and by how much.
func Make(c *spec.Cluster, hosts []topology.Host, l Ledger) (*Plan, error) {
	if len(hosts) == 0 {
		return nil, errors.New("no host to put VMs on")
	}
	h := &hosts[0]
	count := 0
	for _, g := range c.VMs {
		count += g.Count
	}
	if count == 0 {
		return nil, errors.New("the cluster file asks for no VM: give `vms` a group with a count")
	}
	p := &Plan{Version: 1, Cluster: c.Name}
	usable := map[int]bool{}
	cpus := 0
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Usable() {
			usable[c.Core] = true
			cpus++
		}
	}
	share := max(1, len(usable)/count)
	vcpus := 0
	var memory uint64
	for _, g := range c.VMs {
		n := g.VCPUs
		if n == 0 {
			n = share
		}
		for i := 0; i < g.Count; i++ {
			p.VMs = append(p.VMs, VM{
				Name: vmName(&g, i), Index: len(p.VMs), Host: h.Name, VCPUs: n,
				Sockets: 1, Dies: 1, Cores: n, Threads: 1, MemoryBytes: uint64(g.Memory),
			})
			vcpus += n
			memory += uint64(g.Memory)
		}
	}
	if vcpus > cpus {
		s := fmt.Sprintf("%s has %d CPUs for %d vCPUs: they take turns", h.Name, cpus, vcpus)
		if c.Placement.Strict {
			return nil, fmt.Errorf("%s: ask for %d vCPUs fewer, or leave out strict", s, vcpus-cpus)
		}
		p.Warnings = append(p.Warnings, s)
	}
	r, err := regionOf(c, count)
	if err != nil {
		return nil, err
	}
	p.Region = r
	if r != nil {
		memory += r.SizeBytes
	}
	var have uint64
	for _, n := range h.Nodes {
		if n.Allowed {
			have += n.AvailableBytes
		}
	}
	if m := h.Limits.MemoryBytes; m > 0 && m < have {
		have = m
	}
	if memory > have {
		return nil, fmt.Errorf("%s has %s of memory available for %s of VMs and region: %s short; ask for less memory or fewer VMs",
			h.Name, size(have), size(memory), size(memory-have))
	}
	return p, nil
}

// vmName is the name of the i-th VM of a group.
func vmName(g *spec.Group, i int) string {
	base := g.Name
	if base == "" {
		base = "vm"
	}
	return fmt.Sprintf("%s%d", base, i)
}

// regionOf gives the region that a cluster file asks for on a host with count VMs; nil is none.
func regionOf(c *spec.Cluster, count int) (*Region, error) {
	const auto = 64 << 20
	r := &Region{SizeBytes: auto, Backing: c.Region.Backing, Device: c.Region.Device, HostNode: -1}
	switch {
	case c.Region.Size != nil:
		r.SizeBytes = uint64(*c.Region.Size)
	case count < 2:
		r.SizeBytes = 0
	}
	if r.SizeBytes == 0 {
		return nil, nil
	}
	if r.SizeBytes < 1<<20 || r.SizeBytes&(r.SizeBytes-1) != 0 {
		return nil, fmt.Errorf("region.size %s: a PCI memory window is a power of two of at least 1MiB", size(r.SizeBytes))
	}
	if r.Backing == "" {
		r.Backing = "shm"
	}
	if r.Device == "" || r.Device == "auto" {
		r.Device = "ivshmem"
	}
	return r, nil
}

// size writes bytes with the unit that fits.
func size(b uint64) string {
	switch {
	case b >= 1<<30 && b%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", b>>30)
	case b >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
	case b >= 1<<20:
		return fmt.Sprintf("%d MiB", b>>20)
	}
	return fmt.Sprintf("%d bytes", b)
}
