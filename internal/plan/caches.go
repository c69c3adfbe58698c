package plan

// cache returns the index of a CPU's last-level cache in the host's list of caches, or -1 if it is not known.
func (r *capacity) cache(cpu int) int {
	if r.caches == nil {
		r.caches = make([]int32, len(r.nodeOf))
		level := make([]int, len(r.nodeOf))
		for i := range r.caches {
			r.caches[i] = -1
		}
		for i := range r.host.Caches {
			c := &r.host.Caches[i]
			for _, id := range c.CPUs {
				if c.Level >= 3 && id < len(level) && c.Level > level[id] {
					r.caches[id], level[id] = int32(i), c.Level
				}
			}
		}
	}
	return int(r.caches[cpu])
}

// sockets returns the number of sockets that the guest sees: the number of packages under the VM if one last-level
// cache covers each of them (sub-NUMA clustering). Otherwise each guest node is a socket, so that no node spans two
// sockets and no cache appears to span nodes.
func (m *maker) sockets(r *capacity, ch *chosen, s *shape) int {
	if s.guestNodes == 1 || s.guestNodes != s.hostNodes {
		return s.guestNodes
	}
	per := map[int]int{}
	for _, j := range ch.placement.nodes {
		per[r.nodes[j].pkg]++
	}
	if len(per) == s.guestNodes || s.guestNodes%len(per) != 0 {
		return s.guestNodes
	}
	for _, n := range per {
		if n != s.guestNodes/len(per) {
			return s.guestNodes
		}
	}
	var widest uint64
	for _, c := range r.host.Caches {
		if c.Level < 3 || len(c.CPUs) == 0 {
			continue
		}
		nodes := map[int]bool{}
		for _, id := range c.CPUs {
			if cpu := r.host.CPU(id); cpu != nil {
				nodes[cpu.Node] = true
			}
		}
		widest = max(widest, uint64(len(nodes)))
	}
	if widest < 2 {
		return s.guestNodes
	}
	return len(per)
}

// dies returns the number of dies per guest socket: one for each last-level cache under the socket, because QEMU
// presents each die with one such cache. Dies are equal in size; if the caches hold unequal numbers of vCPUs, or
// parts of cores, the socket has one die.
func (m *maker) dies(vm *VM) int {
	if !m.pin || len(vm.L3) <= vm.Sockets {
		return 1
	}
	per := vm.VCPUs / len(vm.L3)
	ok := len(vm.L3)%vm.Sockets == 0 && per%vm.Threads == 0
	for i, g := range vm.L3 {
		ok = ok && len(g) == per && g[0] == i*per && g[per-1] == g[0]+per-1
	}
	if !ok {
		vm.reason("the guest sees one last-level cache a socket: the %d under its vCPUs do not hold equal numbers of them, or lie over two sockets", len(vm.L3))
		return 1
	}
	return len(vm.L3) / vm.Sockets
}

// equalDies keeps the VMs of a group alike: if their numbers of dies differ, each VM gets one die per socket.
func (m *maker) equalDies(vms []VM) {
	for _, g := range m.groups {
		list := vms[g.first : g.first+g.count]
		same := true
		for i := range list {
			same = same && list[i].Dies == list[0].Dies
		}
		for i := range list {
			vm := &list[i]
			if same || vm.Dies == 1 {
				continue
			}
			vm.reason("the guest sees one last-level cache a socket, not %d: other VMs of its group lie otherwise over caches, and equal VMs get equal shapes", vm.Dies)
			vm.Cores, vm.Dies = vm.Cores*vm.Dies, 1
		}
	}
}
