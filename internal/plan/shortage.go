package plan

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// shortage is the reason why no plan exists.
type shortage struct {
	text     string
	cpusOnly bool // a plan would exist with more cores
}

// diagnose returns which resource is short, where, by how much, and the nearest requests that would fit. It is called
// only if no plan was found.
func (m *maker) diagnose(a *attempt, region *Region) shortage {
	have, need := m.roomFor(a)
	huge := m.place.Pages != "auto" && m.place.Pages != "" && m.place.Pages != "ordinary"
	if s := m.devicesShort(a); s != "" {
		return shortage{text: s}
	}
	if need > have {
		return shortage{text: m.memoryShort(a, have, need, region)}
	}
	cores, wanted := 0, 0
	for _, r := range a.capacities {
		for j := range r.nodes {
			if r.nodes[j].open {
				cores += r.nodes[j].count(a.threads)
			}
		}
	}
	vcpus := 0
	for i := range m.groups {
		g := &m.groups[i]
		wanted += g.count * ((g.vcpus + a.threads - 1) / a.threads)
		vcpus += g.count * g.vcpus
	}
	where := m.hosts[0].Name
	if len(m.hosts) > 1 {
		where = fmt.Sprintf("the %d hosts", len(m.hosts))
	}
	var b strings.Builder
	if wanted > cores {
		fmt.Fprintf(&b, "%d vCPUs need %d cores, and %s %s %d free%s: %d short", vcpus, wanted, where, words.Plural(len(m.hosts), "has", "have"), cores, m.keptBack(a), wanted-cores)
		b.WriteString(m.nearest(a, region, true))
		return shortage{b.String(), !huge && m.place.SMT != "require"}
	}
	// The total suffices, but it is divided into pieces that are too small.
	g := m.largest()
	var nodes []string
	for _, r := range a.capacities[:min(len(a.capacities), 2)] {
		for j := range r.nodes {
			n := &r.nodes[j]
			if n.pkg < 0 || len(nodes) == 16 {
				continue
			}
			nodes = append(nodes, fmt.Sprintf("node %d %d cores and %s", n.id, n.count(a.threads), words.Bytes(m.roomiest(n))))
		}
	}
	if k := m.place.Nodes; k > 0 && g.vcpus%k != 0 {
		fmt.Fprintf(&b, "%s: %d vCPUs cannot be split into %d equal nodes (placement.nodes)", g.name, g.vcpus, k)
	} else {
		fmt.Fprintf(&b, "%s: %d vCPUs and %s cannot be split into equal parts that fit the nodes of %s (free: %s)", g.name, g.vcpus, words.Bytes(g.memory), where, strings.Join(nodes, ", "))
	}
	b.WriteString(m.notMultiple(a))
	b.WriteString(m.nearest(a, region, true))
	return shortage{b.String(), !huge}
}

// roomFor returns the memory that the VMs need, and the memory of all hosts in one page size: the size with the most
// free memory among those that divide all VMs' memory.
func (m *maker) roomFor(a *attempt) (have, need uint64) {
	for i := range m.groups {
		need += uint64(m.groups[i].count) * m.groups[i].memory
	}
	for k, p := range m.pages {
		if m.pageAllowed(p) && m.multiple(p) {
			have = max(have, sumFree(a, m.pages, k))
		}
	}
	return have, need
}

// sumFree returns the free memory of all hosts in pages of class k.
func sumFree(a *attempt, pages []uint64, k int) uint64 {
	var sum uint64
	for _, r := range a.capacities {
		if pages[k] == 0 {
			sum += r.ordinary(pages)
			continue
		}
		for j := range r.nodes {
			if r.nodes[j].open {
				sum += r.nodes[j].free[k]
			}
		}
	}
	return sum
}

// multiple reports whether the memory of all VMs is a multiple of a page.
func (m *maker) multiple(page uint64) bool {
	for i := range m.groups {
		if page > 0 && m.groups[i].memory%page != 0 {
			return false
		}
	}
	return true
}

// notMultiple returns which free huge pages the VMs cannot use because their memory is not a multiple of them, and an
// amount that is; "": none.
func (m *maker) notMultiple(a *attempt) string {
	for k, p := range m.pages {
		if p == 0 || !m.pageAllowed(p) {
			continue
		}
		free := sumFree(a, m.pages, k)
		for i := range m.groups {
			if g := &m.groups[i]; g.memory%p != 0 && free >= g.memory {
				return fmt.Sprintf("; %s are free in %s, but %s is not a multiple of %s: ask for %s", words.Bytes(free), pageName(p), words.Bytes(g.memory), words.Bytes(p), spec.Size((g.memory+p-1)/p*p))
			}
		}
	}
	return ""
}

// roomiest returns the most memory of any one page size on a node.
func (m *maker) roomiest(n *roomNode) uint64 {
	var most uint64
	for k, p := range m.pages {
		if m.pageAllowed(p) {
			most = max(most, n.free[k])
		}
	}
	return most
}

// largest returns the group with the largest VMs.
func (m *maker) largest() *group {
	best := &m.groups[0]
	for i := range m.groups {
		if m.groups[i].vcpus > best.vcpus {
			best = &m.groups[i]
		}
	}
	return best
}

// keptBack reports the cores that exist but are not free.
func (m *maker) keptBack(a *attempt) string {
	all, held, closed, reserved := 0, 0, 0, 0
	for _, r := range a.capacities {
		all += r.cores
		held += r.heldCPUs
		for _, id := range r.reserved {
			if c := r.host.CPU(id); c != nil && firstOf(r.host, c) == id {
				reserved++
			}
		}
		for j := range r.nodes {
			if !r.nodes[j].open {
				closed += r.nodes[j].count(a.threads)
			}
		}
	}
	var parts []string
	if reserved > 0 {
		parts = append(parts, fmt.Sprintf("%d reserved", reserved))
	}
	if held > 0 {
		parts = append(parts, fmt.Sprintf("running VMs hold %d CPUs", held))
	}
	if closed > 0 {
		parts = append(parts, fmt.Sprintf("%d on nodes not in placement.hostNodes", closed))
	}
	if a.isolated {
		parts = append(parts, "only isolated CPUs counted")
	}
	for _, r := range a.capacities {
		if k := r.host.Kinds; a.kind > 0 && len(k) > 1 {
			parts = append(parts, fmt.Sprintf("only %s counted: placement.cores: any takes all", k[min(a.kind, len(k))-1]))
			break
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d (%s)", all, strings.Join(parts, ", "))
}

// firstOf returns the lowest usable CPU of a CPU's core.
func firstOf(h *topology.Host, c *topology.CPU) int {
	for i := range h.CPUs {
		if o := &h.CPUs[i]; o.Core == c.Core && o.Usable() {
			return o.ID
		}
	}
	return -1
}

// memoryShort reports how much memory is missing.
func (m *maker) memoryShort(a *attempt, have, need uint64, region *Region) string {
	where := m.hosts[0].Name
	if len(m.hosts) > 1 {
		where = fmt.Sprintf("the %d hosts together", len(m.hosts))
	}
	what := "memory available"
	if p := m.place.Pages; p != "" && p != "auto" && p != "ordinary" {
		what = "free huge pages"
		if p != "huge" {
			what = "free pages of " + p
		}
	}
	s := fmt.Sprintf("%s: %s of %s for VMs of %s: %s short", where, words.Bytes(have), what, words.Bytes(need), words.Bytes(need-min(have, need)))
	if need <= have {
		s = fmt.Sprintf("%s: %s of %s, but no host has %s for one more VM beside the others", where, words.Bytes(have), what, words.Bytes(m.groups[0].memory))
	}
	for _, r := range a.capacities {
		if r.limit > 0 {
			s += fmt.Sprintf(" (the job's cgroup allows %s more on %s)", words.Bytes(r.limit), r.host.Name)
			break
		}
	}
	for _, r := range a.capacities {
		if len(r.nodes) > 1 && len(m.hosts) == 1 {
			var parts []string
			for j := range r.nodes {
				if len(parts) < 16 {
					parts = append(parts, fmt.Sprintf("node %d %s", r.nodes[j].id, words.Bytes(m.roomiest(&r.nodes[j]))))
				}
			}
			s += "; free: " + strings.Join(parts, ", ")
		}
	}
	return s + m.notMultiple(a) + m.nearest(a, region, false)
}

// devicesShort reports a device of which too few are free.
func (m *maker) devicesShort(a *attempt) string {
	for gi := range m.groups {
		g := &m.groups[gi]
		for d := range g.spec.Devices {
			dev := &g.spec.Devices[d]
			per := max(1, dev.Count)
			need, free, cards, possible := g.count*per, 0, 0, 0
			for _, r := range a.capacities {
				for _, k := range r.eligible(dev) {
					free += len(r.pools[k].free)
					cards++
				}
				for i := range r.host.Devices {
					h := &r.host.Devices[i]
					p := devicePool{pf: h.Address, class: h.Class, names: append(append([]string(nil), h.RDMA...), h.Net...)}
					if h.TotalVFs > len(h.VFs) && matches(&p, dev.PF, dev.Class) {
						possible += h.TotalVFs - len(h.VFs)
					}
				}
			}
			if free >= need {
				continue
			}
			name := words.Plural(need, "VF", "VFs")
			switch {
			case dev.Address != "":
				name = "device " + dev.Address
			case dev.PF != "":
				name += " of " + dev.PF
			case dev.Class != "":
				name = dev.Class + " " + name
			}
			s := fmt.Sprintf("%s: %d %s %d %s, and %d are free on %d %s: %d short", g.name, g.count, words.Plural(g.count, "VM needs", "VMs need"), need, name, free, len(m.hosts), words.Plural(len(m.hosts), "host", "hosts"), need-free)
			if dev.Address != "" {
				s = fmt.Sprintf("%s: %d %s %s, and the host has it once or not at all, or a running VM holds it", g.name, g.count, words.Plural(g.count, "VM needs", "VMs need"), name)
			}
			if dev.Address != "" && len(m.hosts) > 1 {
				s = fmt.Sprintf("%s: %d %s %s, which is free on %d of %d hosts: VMs of one host cannot share it", g.name, g.count, words.Plural(g.count, "VM needs", "VMs need"), name, free, len(m.hosts))
			}
			if possible > 0 && dev.Address == "" {
				s += fmt.Sprintf("; the cards can have %d more: make VFs on the host", possible)
			}
			if fit := free / per; fit > 0 && dev.Address == "" {
				s += fmt.Sprintf("; %d %s would fit", fit, words.Plural(fit, "VM", "VMs"))
			}
			return s
		}
	}
	return ""
}

func matches(p *devicePool, pf, class string) bool {
	switch {
	case pf != "":
		return p.pf == pf || slices.Contains(p.names, pf)
	case class == "infiniband":
		return infiniband(p)
	case class == "ethernet":
		return ethernet(p)
	}
	return true
}

// capacityFor reports whether the VMs of the only group, without devices, fit in some shape, by counting instead of a
// search.
func (m *maker) capacityFor(a *attempt) bool {
	for _, c := range m.combinations(a.threads) {
		crowd := newCrowd(m, a, c.shapes)
		most := make([]int, a.classes)
		for k := range most {
			most[k] = crowd.most(k, 0)
		}
		n := 0
		for _, k := range a.class {
			n += most[k]
		}
		if n >= m.groups[0].count {
			return true
		}
	}
	return false
}

// mayUnpin reports whether VMs without cores of their own are planned nevertheless, see unpinned.
func (m *maker) mayUnpin() bool {
	p := m.place.Pages
	return !m.place.Strict && m.place.Pin != "always" && m.place.SMT != "require" && (p == "" || p == "auto" || p == "ordinary")
}

// memoryFor reports whether the memory suffices for the VMs, none of which has devices, regardless of the CPUs.
func (m *maker) memoryFor(a *attempt, region *Region) bool {
	var left []uint64
	for _, r := range a.capacities {
		free := r.ordinary(m.pages)
		if region != nil && region.Backing == "shm" {
			free -= min(free, region.SizeBytes)
		}
		left = append(left, free)
	}
	for gi := range m.groups {
		g := &m.groups[gi]
		if len(g.spec.Devices) > 0 {
			return false
		}
		todo := uint64(g.count)
		for h := range left {
			n := todo
			if g.memory > 0 {
				n = min(n, left[h]/g.memory)
			}
			left[h] -= n * g.memory
			todo -= n
		}
		if todo > 0 {
			return false
		}
	}
	return true
}

// regionFor returns region as the current VMs would get it: smaller for fewer of them if the cluster file leaves its
// size open, and nil for a single VM.
func (m *maker) regionFor(region *Region) *Region {
	if region == nil || m.c.Region.Size != nil {
		return region
	}
	if m.total() < 2 {
		return nil
	}
	r := *region
	m.growRegion(&r)
	return &r
}

// realises reports whether a solution leaves room for the region.
func (m *maker) realises(a *attempt, s *solution, region Region) bool {
	first := 0
	for i := range m.groups {
		m.groups[i].first = first
		first += m.groups[i].count
	}
	notes, warnings := m.notes, m.warnings
	_, err := m.realise(a, s, &region)
	m.notes, m.warnings = notes, warnings
	return err == nil
}

// nearest returns the nearest requests that fit, as the end of a sentence: fewer vCPUs, fewer VMs, less memory, each
// with the rest unchanged. If pinned is set they fit on cores of their own, else as they would be planned.
func (m *maker) nearest(a *attempt, region *Region, pinned bool) string {
	saved := append([]group(nil), m.groups...)
	m.steps = nearestSteps
	defer func() {
		copy(m.groups, saved)
		m.steps = m.budget()
	}()
	fits := func() bool {
		if !pinned && m.mayUnpin() && m.memoryFor(a, m.regionFor(region)) {
			return true
		}
		own := m.regionFor(region)
		if len(m.groups) == 1 && len(m.groups[0].spec.Devices) == 0 && (own == nil || !m.capacityFor(a)) {
			return m.capacityFor(a)
		}
		s := m.solve(a)
		return s != nil && (own == nil || m.realises(a, s, *own))
	}
	var out []string
	g := m.largest()
	gi := 0
	for i := range m.groups {
		if &m.groups[i] == g {
			gi = i
		}
	}
	others := ""
	if len(m.groups) > 1 {
		others = " of group " + g.name
	}
	tries := 0
	for v := g.vcpus - 1; v >= 1 && tries < 256; v-- {
		tries++
		m.groups[gi].vcpus = v
		if fits() {
			out = append(out, fmt.Sprintf("%d %s%s of %d %s", g.count, words.Plural(g.count, "VM", "VMs"), others, v, words.Plural(v, "vCPU", "vCPUs")))
			break
		}
	}
	copy(m.groups, saved)
	n := sort.Search(g.count, func(k int) bool {
		m.groups[gi].count = k + 1
		return !fits()
	})
	if n > 0 && n < saved[gi].count {
		out = append(out, fmt.Sprintf("%d %s%s of %d %s and %s", n, words.Plural(n, "VM", "VMs"), others, saved[gi].vcpus, words.Plural(saved[gi].vcpus, "vCPU", "vCPUs"), words.Bytes(saved[gi].memory)))
	}
	copy(m.groups, saved)
	// Memory in steps of 64 MiB, up to 512 MiB less; beyond that in GiB.
	step := uint64(64 << 20)
	if saved[gi].memory > 8<<30 {
		step = 1 << 30
	}
	k := sort.Search(int(min((saved[gi].memory-1)/step, 1<<16)), func(k int) bool {
		m.groups[gi].memory = saved[gi].memory/step*step - uint64(k)*step
		return m.groups[gi].memory == 0 || fits()
	})
	m.groups[gi].memory = saved[gi].memory/step*step - uint64(k)*step
	if m.groups[gi].memory > 0 && m.groups[gi].memory < saved[gi].memory && fits() {
		out = append(out, fmt.Sprintf("%d %s%s of %s", g.count, words.Plural(g.count, "VM", "VMs"), others, words.Bytes(m.groups[gi].memory)))
	}
	if len(out) == 0 {
		return ""
	}
	return "; fits: " + strings.Join(out, ", or ")
}
