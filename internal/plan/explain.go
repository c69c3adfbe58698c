package plan

import (
	"fmt"
	"strings"

	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// explain adds the reasons for a VM's placement and for the rejected alternatives.
func (m *maker) explain(vm *VM, r *capacity, a *attempt, ch *chosen, s *solution, g *group, p *placed) {
	sh := &s.shapes[ch.placement.group]
	ids := make([]int, len(ch.placement.nodes))
	for i, j := range ch.placement.nodes {
		ids[i] = r.nodes[j].id
	}
	list := topology.FormatList(ids)
	page := m.pages[sh.class]
	m.explainNodes(vm, r, a, sh, g, list, page)
	m.explainDevices(vm, r, ch, sh)
	m.explainCaches(vm, r, ch, sh)
	if len(ids) > 1 && len(r.nodes) > len(ids) {
		far, near := 0, 255
		for _, i := range ch.placement.nodes {
			for _, j := range ch.placement.nodes {
				if i != j {
					far, near = max(far, int(r.dist[i][j])), min(near, int(r.dist[i][j]))
				}
			}
		}
		most := 0
		for i := range r.nodes {
			for j := range r.nodes {
				if i != j && r.nodes[i].open && r.nodes[j].open {
					most = max(most, int(r.dist[i][j]))
				}
			}
		}
		if far < most {
			vm.reason("of the nodes with room these are nearest to each other and to what was asked for: distance %s, others up to %d", span(near, far), most)
		}
	}
	m.explainPages(vm, r, ch, sh, g)
	m.explainThreads(vm, r, a, sh, g)
}

func span(a, b int) string {
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d to %d", a, b)
}

// explainNodes adds the reason for the VM's number of nodes.
func (m *maker) explainNodes(vm *VM, r *capacity, a *attempt, sh *shape, g *group, list string, page uint64) {
	cores := (g.vcpus + sh.threads - 1) / sh.threads
	best, bestNode := 0, 0
	var mem uint64
	memNode := 0
	for j := range r.nodes {
		n := &r.nodes[j]
		if !n.open {
			continue
		}
		if c := n.count(a.threads); c > best {
			best, bestNode = c, n.id
		}
		if f := n.free[sh.class]; f > mem {
			mem, memNode = f, n.id
		}
	}
	what := fmt.Sprintf("%d vCPUs", g.vcpus)
	if sh.threads > 1 {
		what = fmt.Sprintf("%d vCPUs (%d cores)", g.vcpus, cores)
	}
	k := sh.hostNodes
	needCores, needMem := (cores+best-1)/max(1, best), int((g.memory+mem-1)/max(1, mem))
	switch {
	case len(r.nodes) == 1:
		if sh.guestNodes > 1 {
			vm.reason("%d guest nodes on the host's one node, as placement.nodes asks", sh.guestNodes)
		}
		return
	case m.place.Nodes > 0 && sh.guestNodes != k && sh.guestNodes > k:
		vm.reason("%d guest nodes as placement.nodes asks, %d on each of %s %s", sh.guestNodes, sh.guestNodes/k, words.Plural(k, "node", "nodes"), list)
	case m.place.Nodes > 0 && sh.guestNodes != k:
		vm.reason("%d guest %s as placement.nodes asks, each over %d of nodes %s with its memory interleaved over them", sh.guestNodes, words.Plural(sh.guestNodes, "node", "nodes"), k/sh.guestNodes, list)
	case m.place.Nodes > 0:
		vm.reason("%d guest %s as placement.nodes asks, on %s %s", k, words.Plural(k, "node", "nodes"), words.Plural(k, "node", "nodes"), list)
	case k == 1:
		vm.reason("one node, %s: %s and %s fit it", list, what, words.Bytes(g.memory))
	case m.policy == spread:
		vm.reason("spread over nodes %s: %d memory controllers and caches serve %s (policy spread%s)", list, k, what, m.hinted())
	case needMem > needCores:
		vm.reason("spans nodes %s: %s > %s free in %s of any node (most on node %d); ask for %s or less to keep it on one%s", list, words.Bytes(g.memory), words.Bytes(mem), pageName(page), memNode, words.Bytes(mem>>30<<30), uneven(needMem, k))
	case needCores > 1:
		vm.reason("spans nodes %s: %s > %d free cores of any node (most on node %d); ask for %d or fewer to keep it on one%s", list, what, best, bestNode, best*sh.threads, uneven(needCores, k))
	default:
		vm.reason("spans nodes %s: not all %s of its group fit one node each, and equal VMs get equal shapes", list, words.Plural(g.count, "VM", fmt.Sprintf("%d VMs", g.count)))
	}
}

// uneven returns the reason for using more nodes than the fewest possible.
func uneven(least, k int) string {
	if k > least {
		return fmt.Sprintf("; %d nodes would do, but not in equal parts, or not for all VMs alike", least)
	}
	return ""
}

func (m *maker) hinted() string {
	if m.place.Hint != "" {
		return ", hint: " + m.place.Hint
	}
	return ""
}

// explainDevices adds the VM's distance to its devices, and the reason why no nearer placement was possible.
func (m *maker) explainDevices(vm *VM, r *capacity, ch *chosen, sh *shape) {
	for u, k := range ch.placement.units {
		p := &r.pools[k]
		d := vm.Devices[u]
		kind := "VF " + d.Address + " of " + p.label()
		if p.one {
			kind = d.Address
			if len(p.names) > 0 {
				kind += " (" + p.names[0] + ")"
			}
		}
		if p.node < 0 {
			vm.reason("%s: the firmware does not say which node it is on", kind)
			continue
		}
		near := 255
		for _, j := range ch.placement.nodes {
			near = min(near, int(r.dist[p.node][j]))
		}
		if near == 10 {
			vm.reason("%s is on node %d, which the VM is on", kind, d.HostNode)
			continue
		}
		n := &r.nodes[p.node]
		var why string
		switch {
		case !n.open:
			why = fmt.Sprintf("node %d is not among placement.hostNodes", d.HostNode)
		case n.count(sh.threads) < sh.cores:
			why = fmt.Sprintf("node %d has %d free cores, %d are needed", d.HostNode, n.count(sh.threads), sh.cores)
		case n.free[sh.class] < sh.bytes:
			why = fmt.Sprintf("node %d has %s free in %s, %s are needed", d.HostNode, words.Bytes(n.free[sh.class]), pageName(m.pages[sh.class]), words.Bytes(sh.bytes))
		default:
			why = fmt.Sprintf("node %d is full with other VMs of the cluster", d.HostNode)
		}
		vm.reason("%s is on node %d, distance %d: %s", kind, d.HostNode, near, why)
	}
}

// explainCaches adds a reason if the VM straddles last-level caches.
func (m *maker) explainCaches(vm *VM, r *capacity, ch *chosen, sh *shape) {
	for k, n := range ch.cuts {
		node := &r.nodes[ch.placement.nodes[k]]
		if len(node.groups) < 2 {
			continue
		}
		most := 0
		for g := range node.groups {
			most = max(most, node.groups[g].count(sh.threads))
		}
		switch {
		case m.wide:
			vm.reason("on node %d over %d of %d last-level caches (hint: cache)", node.id, n, len(node.groups))
		case n > 1 && sh.cores > most:
			vm.reason("on node %d over %d last-level caches: %d cores > %d free under any; ask for %d vCPUs a node to keep to one", node.id, n, sh.cores, most, most*sh.threads)
		case n > 1:
			vm.reason("on node %d over %d last-level caches: other VMs have the rest", node.id, n)
		}
	}
}

// explainPages adds the reason for the page size.
func (m *maker) explainPages(vm *VM, r *capacity, ch *chosen, sh *shape, g *group) {
	page := m.pages[sh.class]
	var no []string
	for k := 0; k < sh.class; k++ {
		p := m.pages[k]
		if !m.pageAllowed(p) {
			continue
		}
		var most uint64
		for j := range r.nodes {
			most = max(most, r.nodes[j].free[k])
		}
		switch {
		case g.memory%p != 0:
			no = append(no, fmt.Sprintf("%s is not a multiple of %s", words.Bytes(g.memory), pageName(p)))
		case most == 0:
			no = append(no, "no node has free "+pageName(p))
		default:
			no = append(no, fmt.Sprintf("%s a node in %s is more than there is for all VMs (%s free on the best node)", words.Bytes(sh.bytes), pageName(p), words.Bytes(most)))
		}
	}
	switch {
	case page > 0 && len(no) > 0:
		vm.reason("memory in %s: %s", pageName(page), strings.Join(no, "; "))
	case page > 0:
		vm.reason("memory in %s", pageName(page))
	case len(no) > 0:
		vm.reason("memory in ordinary pages: %s", strings.Join(no, "; "))
	}
}

func pageName(p uint64) string {
	if p == 0 {
		return "ordinary pages"
	}
	return words.Bytes(p) + " pages"
}

// explainThreads adds how the vCPUs are placed on cores.
func (m *maker) explainThreads(vm *VM, r *capacity, a *attempt, sh *shape, g *group) {
	smt := 1
	for j := range r.nodes {
		for i := range r.nodes[j].groups {
			for _, c := range r.nodes[j].groups[i].cores {
				smt = max(smt, len(c.cpus))
			}
		}
	}
	switch {
	case !m.pin:
		vm.reason("vCPUs are not pinned: %s", map[bool]string{true: "instructions are not known to run by KVM (pin: always would)", false: "pin: never"}[m.place.Pin != "never"])
	case a.isolated:
		vm.reason("vCPUs on isolated CPUs, which the host's scheduler leaves alone")
	}
	if smt > 1 && sh.threads == 1 {
		vm.reason("a core for each vCPU, its other thread left idle (smt: isolate)")
	}
	if sh.threads > 1 && vm.Threads == 1 {
		vm.reason("the guest sees no SMT: %d vCPUs do not fill whole cores on each node", g.vcpus)
	}
}
