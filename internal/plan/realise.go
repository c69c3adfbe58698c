package plan

import (
	"fmt"
	"sort"
)

// chosen is a VM with its assigned cores, before it becomes a VM of the plan.
type chosen struct {
	placement *placement
	cores     [][]core // by index in placement.nodes
	cuts      []int    // caches that its cores span, by index
}

// realise turns a solution into a plan: cores, vCPUs, memory, devices.
func (m *maker) realise(a *attempt, s *solution, region *Region) (*Plan, error) {
	p := &Plan{Version: 1, Cluster: m.c.Name, Region: region}
	vms := make([]VM, m.total())
	next := make([]int, len(m.groups))
	for h := range m.hosts {
		if s.placed[h] == nil {
			continue
		}
		r := a.capacities[h]
		if len(r.reserved) > 0 {
			cpus := append([]int(nil), r.reserved...)
			sort.Ints(cpus)
			p.Reserved = append(p.Reserved, Reserved{r.host.Name, cpus})
		}
		list := chooseCores(r, s.placed[h].placements, s.shapes, m.policy, m.wide, a.threads)
		var here []*VM
		var lists [][]core
		pools := make([][]string, len(r.pools))
		for i := range r.pools {
			pools[i] = r.pools[i].free
		}
		for i := range list {
			g := list[i].placement.group
			index := m.groups[g].first + next[g]
			vm := &vms[index]
			*vm = VM{Name: m.groups[g].spec.VMName(next[g]), Index: index, Host: r.host.Name}
			next[g]++
			m.build(vm, r, &list[i], &s.shapes[g], &m.groups[g], pools)
			m.explain(vm, r, a, &list[i], s, &m.groups[g], s.placed[h])
			here = append(here, vm)
			lists = append(lists, list[i].cores...)
		}
		if m.pin {
			m.emulators(r, here, lists, a)
		}
		if err := m.memoryNodes(r, here); err != nil {
			return nil, err
		}
		if err := m.placeRegion(r, a, here, p); err != nil {
			return nil, err
		}
		if !s.placed[h].proof {
			m.notes = append(m.notes, fmt.Sprintf("%s: the search for the best nodes was stopped after %d steps; what is shown is the best found", r.host.Name, m.steps))
		}
		m.hostWarnings(r, here)
		if !m.pin {
			for _, vm := range here {
				vm.Pins, vm.EmulatorCPUs, vm.L3 = nil, nil, nil
			}
		}
	}
	m.equalDies(vms)
	p.VMs = vms
	if m.c.Region.Size == nil && !crowded(vms) { // no two VMs of a host could share it
		p.Region = nil
	}
	if m.place.SMT == "auto" && a.threads > 1 {
		m.notes = append(m.notes, fmt.Sprintf("vCPUs share cores, %d threads on each: there are not enough cores for one each", a.threads))
	}
	p.Reasons, p.Warnings = m.notes, m.warnings
	return p, nil
}

// chooseCores chooses the cores of each VM: in the caches that the packing chose, the lowest cores first.
func chooseCores(r *capacity, placements []placement, shapes []shape, pol policy, wide bool, threads int) []chosen {
	out := make([]chosen, len(placements))
	type item struct{ vm, place int }
	byNode := make([][]item, len(r.nodes))
	for i := range placements {
		sp := &placements[i]
		out[i] = chosen{placement: sp, cores: make([][]core, len(sp.nodes)), cuts: make([]int, len(sp.nodes))}
		for k, j := range sp.nodes {
			byNode[j] = append(byNode[j], item{i, k})
		}
	}
	for j, items := range byNode {
		if len(items) == 0 {
			continue
		}
		node := &r.nodes[j]
		var need, bins []int
		for _, it := range items {
			need = append(need, shapes[placements[it.vm].group].cores)
		}
		able := make([][]core, len(node.groups))
		for g := range node.groups {
			for _, c := range node.groups[g].cores {
				if len(c.cpus) >= threads {
					able[g] = append(able[g], c)
				}
			}
			bins = append(bins, len(able[g]))
		}
		pk := packFor(need, bins, pol, wide)
		for x, it := range items {
			for g, n := range pk.alloc[x] {
				if n > 0 {
					out[it.vm].cores[it.place] = append(out[it.vm].cores[it.place], able[g][:n]...)
					out[it.vm].cuts[it.place]++
					able[g] = able[g][n:]
				}
			}
		}
	}
	return out
}

// build fills in a VM's CPUs, nodes, memory and devices.
func (m *maker) build(vm *VM, r *capacity, ch *chosen, s *shape, g *group, pools [][]string) {
	vm.VCPUs, vm.MemoryBytes = g.vcpus, g.memory
	perHost, perGuest := g.vcpus/s.hostNodes, g.vcpus/s.guestNodes
	order := hostOrder(r, ch.placement.nodes, s)
	place := map[int]int{}
	for k, j := range ch.placement.nodes {
		place[j] = k
	}
	threads := s.threads
	if perHost%threads != 0 || perGuest%threads != 0 {
		threads = 1 // the guest sees no SMT, because a core would span two nodes
	}
	l3 := map[int][]int{}
	var l3Order []int
	pins := make([]int, g.vcpus)
	vm.Pins = make([][]int, 0, g.vcpus)
	for _, j := range order {
		n := 0
		for _, c := range ch.cores[place[j]] {
			for t := 0; t < s.threads && n < perHost; t++ {
				v := len(vm.Pins)
				pins[v] = c.cpus[t]
				vm.Pins = append(vm.Pins, pins[v:v+1:v+1])
				if k := r.cache(c.cpus[t]); k >= 0 {
					if l3[k] == nil {
						l3Order = append(l3Order, k)
					}
					l3[k] = append(l3[k], v)
				}
				n++
			}
		}
	}
	for _, k := range l3Order {
		vm.L3 = append(vm.L3, l3[k])
	}
	vm.Threads = threads
	vm.Sockets = m.sockets(r, ch, s)
	vm.Dies = m.dies(vm)
	vm.Cores = g.vcpus / vm.Sockets / vm.Dies / threads
	m.nodes(vm, r, order, s, g)
	m.devices(vm, r, ch.placement, pools)
}

// hostOrder returns the host nodes in the order in which vCPUs fill them: unchanged, or if several are under one
// guest node, each followed by those nearest to it.
func hostOrder(r *capacity, nodes []int, s *shape) []int {
	k := s.hostNodes / s.guestNodes
	if k < 2 {
		return nodes
	}
	left := append([]int(nil), nodes...)
	var out []int
	for len(left) > 0 {
		first := left[0]
		sort.SliceStable(left[1:], func(a, b int) bool { return r.dist[first][left[1+a]] < r.dist[first][left[1+b]] })
		out = append(out, left[:k]...)
		left = append([]int(nil), left[k:]...)
		sort.Ints(left)
	}
	return out
}

// reason appends a sentence to the VM's reasons.
func (vm *VM) reason(format string, a ...any) {
	vm.Reasons = append(vm.Reasons, fmt.Sprintf(format, a...))
}
