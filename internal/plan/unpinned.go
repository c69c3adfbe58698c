package plan

import (
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/words"
)

// unpinned makes a plan in which vCPUs have no cores of their own and the scheduler distributes them over the hosts'
// CPUs; why names the resource that is short. The memory must still suffice.
func (m *maker) unpinned(a *attempt, region *Region, why shortage) (*Plan, error) {
	p := &Plan{Version: 1, Cluster: m.c.Name, Region: region}
	type state struct {
		mem   uint64
		vcpus int
		vms   int
		pools [][]string
	}
	hosts := make([]state, len(m.hosts))
	var have, need uint64
	for h, r := range a.capacities {
		hosts[h].mem = r.ordinary(m.pages)
		have += hosts[h].mem
		if region != nil && region.Backing == "shm" {
			hosts[h].mem -= min(hosts[h].mem, region.SizeBytes)
		}
		for i := range r.pools {
			hosts[h].pools = append(hosts[h].pools, r.pools[i].free)
		}
	}
	for i := range m.groups {
		need += uint64(m.groups[i].count) * m.groups[i].memory
	}
	for gi := range m.groups {
		g := &m.groups[gi]
		for n := 0; n < g.count; n++ {
			best := -1
			for h, r := range a.capacities {
				s := &hosts[h]
				if s.mem < g.memory || !devicesLeft(r, s.pools, g) {
					continue
				}
				// Choose the host whose CPUs are shared by the fewest vCPUs each.
				if best < 0 || (s.vcpus+g.vcpus)*a.capacities[best].cpus < (hosts[best].vcpus+g.vcpus)*r.cpus {
					best = h
				}
			}
			if best < 0 {
				return nil, errors.New(m.memoryShort(a, have, need, region))
			}
			s, r := &hosts[best], a.capacities[best]
			vm := VM{Name: g.spec.VMName(n), Index: len(p.VMs), Host: r.host.Name, VCPUs: g.vcpus,
				Sockets: 1, Dies: 1, Cores: g.vcpus, Threads: 1, MemoryBytes: g.memory}
			s.mem -= g.memory
			s.vcpus += g.vcpus
			s.vms++
			m.unpinnedNodes(&vm, g, r)
			sp := placement{}
			for d := range g.spec.Devices {
				for k := 0; k < max(1, g.spec.Devices[d].Count); k++ {
					for _, pool := range r.eligible(&g.spec.Devices[d]) {
						if left(s.pools[pool], sp.units, pool) {
							sp.units = append(sp.units, pool)
							break
						}
					}
				}
			}
			m.devices(&vm, r, &sp, s.pools)
			vm.reason("vCPUs are not pinned and memory is not bound: %s", why.text)
			p.VMs = append(p.VMs, vm)
		}
	}
	for h, r := range a.capacities {
		if hosts[h].vcpus > r.cpus {
			p.Overcommitted = true
			m.warnings = append(m.warnings, fmt.Sprintf("%s has %d %s for %d vCPUs: vCPUs share them, and ranks wait for each other", r.host.Name, r.cpus, words.Plural(r.cpus, "CPU", "CPUs"), hosts[h].vcpus))
		} else if hosts[h].vcpus > 0 {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: vCPUs share its CPUs, not pinned: %s", r.host.Name, why.text))
		}
		if kinds := r.host.Kinds; len(kinds) > 1 && hosts[h].vcpus > 0 {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: vCPUs move between %s: ranks on the slower ones hold up the others", r.host.Name, strings.Join(kinds, " and ")))
		}
	}
	p.Reasons, p.Warnings = m.notes, m.warnings
	return p, nil
}

// left reports whether pool k has a function beyond those in units, which a VM already uses.
func left(pool []string, units []int, k int) bool {
	n := 0
	for _, u := range units {
		if u == k {
			n++
		}
	}
	return len(pool) > n
}

// devicesLeft reports whether a host has the devices of one more VM.
func devicesLeft(r *capacity, pools [][]string, g *group) bool {
	var units []int
	for d := range g.spec.Devices {
		for k := 0; k < max(1, g.spec.Devices[d].Count); k++ {
			found := false
			for _, pool := range r.eligible(&g.spec.Devices[d]) {
				if !found && left(pools[pool], units, pool) {
					units = append(units, pool)
					found = true
				}
			}
			if !found {
				return false
			}
		}
	}
	return true
}

// unpinnedNodes assigns a VM the guest nodes that the file requires, bound to no host node. Their distances are those
// on the host's first usable nodes, on as many of these as divide them equally.
func (m *maker) unpinnedNodes(vm *VM, g *group, r *capacity) {
	k := m.place.Nodes
	if k < 2 || g.vcpus%k != 0 {
		return
	}
	vm.Sockets, vm.Cores = k, g.vcpus/k
	var on []int
	for j := range r.nodes {
		if r.nodes[j].open && r.nodes[j].total > 0 {
			on = append(on, j)
		}
	}
	hosts := max(1, min(k, len(on)))
	for k%hosts != 0 {
		hosts--
	}
	per := g.memory / uint64(k) >> 21 << 21
	for i := 0; i < k; i++ {
		n := Node{ID: i, MemoryBytes: per}
		if i == k-1 {
			n.MemoryBytes = g.memory - per*uint64(k-1)
		}
		for v := i * g.vcpus / k; v < (i+1)*g.vcpus/k; v++ {
			n.VCPUs = append(n.VCPUs, v)
		}
		for o := 0; o < k && len(on) > 0; o++ {
			a, b := i*hosts/k, o*hosts/k
			n.Distances = append(n.Distances, guestDistance(r, on[a:a+1], on[b:b+1], i == o))
		}
		vm.Nodes = append(vm.Nodes, n)
	}
}

// ordinary returns the memory of a host in ordinary pages that the job may use.
func (r *capacity) ordinary(pages []uint64) uint64 {
	var sum uint64
	for j := range r.nodes {
		if r.nodes[j].open {
			sum += r.nodes[j].free[len(pages)-1]
		}
	}
	if r.limit > 0 {
		sum = min(sum, r.limit)
	}
	return sum
}
