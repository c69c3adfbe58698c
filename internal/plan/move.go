package plan

import (
	"fmt"
	"io"
	"sort"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// Move describes how the fixed virtual topology of running VMs is placed on another host.
type Move struct {
	To  string   `json:"to" yaml:"to"`
	VMs []MoveVM `json:"vms" yaml:"vms"`
}

// MoveVM is one VM of a Move.
type MoveVM struct {
	Name string `json:"name" yaml:"name"`
	// Plan is the VM on the new host, with the topology that its guest knows.
	Plan VM `json:"plan" yaml:"plan"`
	// Local is the fraction of the memory local to a vCPU in the guest's view that is local in fact: 1 is all.
	Local float64 `json:"local" yaml:"local"`
	// Distance is the mean distance from vCPUs to all memory of the VM on the new host, Ideal that of a VM made for
	// the new host, Believed that in the guest's table.
	Distance float64 `json:"distance" yaml:"distance"`
	Ideal    float64 `json:"ideal" yaml:"ideal"`
	Believed float64 `json:"believed" yaml:"believed"`
	// Differences from the guest's view, one sentence each; empty: none.
	Differences []string `json:"differences,omitempty" yaml:"differences,omitempty"`
}

// MakeMove plans a move of the VMs of a plan to one host, on which the ledger's VMs run. The number of guest nodes,
// their vCPUs and memory stay. Their host nodes change: a guest node may span several host nodes, its memory
// interleaved, or several guest nodes share one. The error reports the resource that is short.
func MakeMove(p *Plan, to topology.Host, place spec.Placement, l Ledger) (*Move, error) {
	out := &Move{To: to.Name}
	// Equal VMs are planned together, grouped by the properties that cannot change.
	c := &spec.Cluster{Version: 1, Name: p.Cluster, Accel: "kvm", Placement: place}
	zero := spec.Size(0)
	c.Region.Size = &zero
	for i := range p.VMs {
		v := &p.VMs[i]
		one := &Plan{}
		need := spec.Group{Name: "v", Count: 1, VCPUs: v.VCPUs, Memory: spec.Size(v.MemoryBytes)}
		m, err := moveOne(c, v, need, to, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		one.VMs = []VM{m.Plan}
		l.Hold(one)
		out.VMs = append(out.VMs, *m)
	}
	return out, nil
}

// moveOne plans the move of one VM.
func moveOne(c *spec.Cluster, v *VM, need spec.Group, to topology.Host, l Ledger) (*MoveVM, error) {
	guest := 0
	for i := range v.Nodes {
		if len(v.Nodes[i].VCPUs) > 0 {
			guest++
		}
	}
	guest = max(guest, 1)
	free := *c
	free.VMs = []spec.Group{need}
	free.Placement.Strict = true
	if v.Threads > 1 {
		free.Placement.SMT = "prefer"
	}
	ideal, err := Make(&free, []topology.Host{to}, l)
	if err != nil {
		return nil, err
	}
	fixed := free
	fixed.Placement.Nodes = guest
	got, err := Make(&fixed, []topology.Host{to}, l)
	if err != nil {
		return nil, fmt.Errorf("its %d nodes stay as they are: %w", guest, err)
	}
	n := got.VMs[0]
	m := &MoveVM{Name: v.Name}
	m.Ideal, _ = reality(&ideal.VMs[0], &to)
	m.Distance, m.Local = reality(&n, &to)
	m.Believed = believed(v)
	m.differences(v, &n)
	// The guest keeps the topology that it knows.
	n.Name, n.Index = v.Name, v.Index
	n.Sockets, n.Dies, n.Cores, n.Threads = v.Sockets, v.Dies, v.Cores, v.Threads
	for i := range n.Nodes {
		if i < len(v.Nodes) {
			n.Nodes[i].Distances = v.Nodes[i].Distances
		}
	}
	n.Devices = nil
	m.Plan = n
	return m, nil
}

// reality returns the mean distance from vCPUs to the VM's memory on the host nodes under it, weighted by the size of
// each guest node's memory, and the fraction of the memory local to a vCPU in the guest's view that is on its own
// host node.
func reality(v *VM, h *topology.Host) (distance, local float64) {
	nodeOf := func(vcpu int) int {
		if vcpu < len(v.Pins) && len(v.Pins[vcpu]) > 0 {
			if c := h.CPU(v.Pins[vcpu][0]); c != nil {
				return c.Node
			}
		}
		return h.Nodes[0].ID
	}
	if len(v.Nodes) == 0 {
		return 10, 1
	}
	var sum, weight, near, own float64
	for i := range v.Nodes {
		for _, c := range v.Nodes[i].VCPUs {
			at := nodeOf(c)
			for j := range v.Nodes {
				w := float64(v.Nodes[j].MemoryBytes) / float64(max(1, len(v.Nodes[j].HostNodes)))
				for _, id := range v.Nodes[j].HostNodes {
					sum += w * float64(h.Distance(at, id))
					weight += w
					if i == j {
						own += w
						if id == at {
							near += w
						}
					}
				}
			}
		}
	}
	if weight == 0 || own == 0 {
		return 10, 1
	}
	return sum / weight, near / own
}

// believed returns the mean distance according to the guest's own table.
func believed(v *VM) float64 {
	if len(v.Nodes) < 2 {
		return 10
	}
	var sum, weight float64
	for i := range v.Nodes {
		for j := range v.Nodes {
			d := 20.0 // QEMU's default
			if i == j {
				d = 10
			}
			if j < len(v.Nodes[i].Distances) {
				d = float64(v.Nodes[i].Distances[j])
			}
			w := float64(len(v.Nodes[i].VCPUs)) * float64(v.Nodes[j].MemoryBytes)
			sum += w * d
			weight += w
		}
	}
	if weight == 0 {
		return 10
	}
	return sum / weight
}

// differences returns the properties of the new host that the guest will not know.
func (m *MoveVM) differences(old, n *VM) {
	say := func(format string, a ...any) { m.Differences = append(m.Differences, fmt.Sprintf(format, a...)) }
	over, shared := 0, map[int]int{}
	for i := range n.Nodes {
		if len(n.Nodes[i].HostNodes) > over {
			over = len(n.Nodes[i].HostNodes)
		}
		for _, id := range n.Nodes[i].HostNodes {
			shared[id]++
		}
	}
	if over > 1 {
		say("each guest node lies over %d host nodes, its memory interleaved: 1 in %d of its accesses stays local", over, over)
	}
	most := 0
	for _, k := range shared {
		most = max(most, k)
	}
	if most > 1 {
		say("%d guest nodes lie on one host node: distances between them are only in the guest's table", most)
	}
	for i := range n.Nodes {
		if i >= len(old.Nodes) {
			break
		}
		a, b := old.Nodes[i].Distances, n.Nodes[i].Distances
		for j := range b {
			if j < len(a) && a[j] != b[j] && j > i {
				say("guest nodes %d and %d: the guest's table says %d, the host's nodes are %d apart", i, j, a[j], b[j])
			}
		}
	}
	if a, b := caches(old), caches(n); a != b && len(old.L3) > 0 && len(n.L3) > 0 {
		say("vCPUs share last-level caches otherwise: %d groups (%s), were %d (%s)", len(n.L3), b, len(old.L3), a)
	}
	if old.Threads != n.Threads {
		say("threads on a core: %d now, the guest knows %d", n.Threads, old.Threads)
	}
	if len(old.Nodes) > 0 && len(n.Nodes) > 0 && old.Nodes[0].PageBytes != n.Nodes[0].PageBytes {
		say("memory in %s, was in %s", pageName(n.Nodes[0].PageBytes), pageName(old.Nodes[0].PageBytes))
	}
	for i := range old.Devices {
		say("device %s stays behind: it must be unplugged before and another plugged after", old.Devices[i].Address)
	}
}

// caches describes a VM's cache groups by their sizes.
func caches(v *VM) string {
	var sizes []int
	for _, g := range v.L3 {
		sizes = append(sizes, len(g))
	}
	sort.Ints(sizes)
	return fmt.Sprint(sizes)
}

// Text writes a move for people.
func (m *Move) Text(w io.Writer) {
	fmt.Fprintf(w, "move to %s\n", m.To)
	for i := range m.VMs {
		v := &m.VMs[i]
		fmt.Fprintf(w, "\n%s: mean distance to memory %.1f, ideal on this host %.1f (%+.0f %%), the guest believes %.1f; %.0f %% of local memory is local\n",
			v.Name, v.Distance, v.Ideal, 100*(v.Distance/v.Ideal-1), v.Believed, 100*v.Local)
		for k := range v.Plan.Nodes {
			n := &v.Plan.Nodes[k]
			fmt.Fprintf(w, "  node %d: vCPUs %s -> CPUs %s; %s on host %s %s\n", n.ID, idList(n.VCPUs), pinList(v.Plan.Pins, n.VCPUs), words.Bytes(n.MemoryBytes),
				words.Plural(len(n.HostNodes), "node", "nodes"), topology.FormatList(n.HostNodes))
		}
		if len(v.Differences) == 0 {
			fmt.Fprintf(w, "  - the guest's picture stays true\n")
		}
		for _, d := range v.Differences {
			fmt.Fprintf(w, "  - %s\n", d)
		}
	}
}
