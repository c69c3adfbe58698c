//go:build nova

package openstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
	"nearmetal/test/plans"
)

// novaHost is a compute host in the input of testdata/place.py for Nova's code.
type novaHost struct {
	Cells   []novaCell `json:"cells"`
	Devices []novaVFs  `json:"devices"`
}

type novaCell struct {
	ID       int            `json:"id"`
	Socket   int            `json:"socket"`
	CPUs     []int          `json:"cpus"`     // cpu_dedicated_set
	Siblings [][]int        `json:"siblings"` // by core
	MiB      uint64         `json:"mib"`
	Pages    map[string]int `json:"pages"` // KiB → pages
}

// novaVFs are the free virtual functions of a card.
type novaVFs struct {
	PF    string `json:"pf"`
	Node  int    `json:"node"` // -1: not known
	Count int    `json:"count"`
}

type novaVM struct {
	VCPUs int               `json:"vcpus"`
	MiB   uint64            `json:"mib"`
	Specs map[string]string `json:"specs"`
	Image map[string]string `json:"image"`
	PFs   [][]string        `json:"pfs"` // for each device, the cards that may provide it
}

// placed is the placement of a VM.
type placed struct {
	CPUs []int  `json:"cpus"` // by vCPU
	Why  string `json:"why"`  // why it is not placed
}

// novaHostOf describes a host. Its dedicated CPUs are those from which the plan selects vCPUs: the isolated ones if
// there are some, and not the reserved ones. Without threads it is one per core, as docs/openstack.md recommends.
func novaHostOf(h *topology.Host, p *plan.Plan, taken []int, threads bool) novaHost {
	isolated := slices.ContainsFunc(h.CPUs, func(c topology.CPU) bool { return c.Isolated && c.Usable() })
	dedicated := func(c *topology.CPU) bool {
		ok := c.Usable() && (c.Isolated || !isolated) && !slices.Contains(taken, c.ID)
		for _, r := range p.Reserved {
			ok = ok && !slices.Contains(r.CPUs, c.ID)
		}
		return ok
	}
	n := novaHost{Devices: []novaVFs{}}
	for _, node := range h.Nodes {
		c := novaCell{ID: node.ID, CPUs: []int{}, Siblings: [][]int{}, Pages: map[string]int{"4": int(node.AvailableBytes >> 12)}}
		bytes := node.AvailableBytes
		for _, pool := range node.Pools {
			c.Pages[fmt.Sprint(pool.PageBytes>>10)] = pool.Free
			bytes += pool.PageBytes * uint64(pool.Free)
		}
		c.MiB = bytes >> 20
		cores := map[int][]int{}
		for _, id := range node.CPUs {
			if cpu := h.CPU(id); dedicated(cpu) && (threads || cores[cpu.Core] == nil) {
				c.CPUs = append(c.CPUs, id)
				cores[cpu.Core] = append(cores[cpu.Core], id)
				c.Socket = cpu.Package
			}
		}
		for _, id := range c.CPUs {
			if s := cores[h.CPU(id).Core]; s[0] == id {
				c.Siblings = append(c.Siblings, s)
			}
		}
		n.Cells = append(n.Cells, c)
	}
	for i := range h.Devices {
		if d := &h.Devices[i]; len(d.VFs) > 0 {
			n.Devices = append(n.Devices, novaVFs{d.Address, d.Node, len(d.VFs)})
		}
	}
	return n
}

// novaVMsOf returns a plan's VMs as its flavors and ports request them.
func novaVMsOf(h *topology.Host, p *plan.Plan, r *Request) []novaVM {
	var list []novaVM
	for i := range p.VMs {
		k := slices.IndexFunc(r.Flavors, func(f Flavor) bool { return f.Name == r.Servers[i].Flavor })
		f := r.Flavors[k]
		vm := novaVM{VCPUs: f.VCPUs, MiB: f.RAMMiB, Specs: f.Specs, Image: r.Image, PFs: [][]string{}}
		for _, d := range p.VMs[i].Devices {
			pf := ""
			if v := h.Device(d.Address); v != nil {
				pf = v.PF
			}
			vm.PFs = append(vm.PFs, []string{pf})
		}
		list = append(list, vm)
	}
	return list
}

// question is an input of testdata/place.py: VMs to place one after the other.
type question struct {
	Host novaHost `json:"host"`
	VMs  []novaVM `json:"vms"`
}

// place runs Nova's code.
func place(t *testing.T, questions []question) [][]placed {
	t.Helper()
	in, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.Command("../../../build/venv/nova/bin/python", "-W", "ignore", "testdata/place.py")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var list [][]placed
	if err := json.Unmarshal(out, &list); err != nil || len(list) != len(questions) {
		t.Fatalf("%v: %s%s", err, out, errs.String())
	}
	return list
}

// seen is the cost of a placement for the worst VM of a cluster.
type seen struct {
	nodes  []string // of each VM, as a list
	far    int      // distance between the two farthest nodes of a VM
	caches int      // last-level caches under a VM
	card   int      // distance from a VM's farthest node to its card; 0: no card
}

// see measures a placement. cards are the nodes of each VM's devices.
func see(h *topology.Host, vms []placed, cards [][]int) seen {
	var s seen
	for i, vm := range vms {
		var nodes []int
		caches := map[int]bool{}
		for _, id := range vm.CPUs {
			cpu := h.CPU(id)
			if !slices.Contains(nodes, cpu.Node) {
				nodes = append(nodes, cpu.Node)
			}
			if cpu.L3 >= 0 {
				caches[cpu.L3] = true
			}
		}
		slices.Sort(nodes)
		s.nodes = append(s.nodes, topology.FormatList(nodes))
		for _, a := range nodes {
			for _, b := range nodes {
				s.far = max(s.far, h.Distance(a, b))
			}
			for _, c := range cards[i] {
				s.card = max(s.card, h.Distance(a, c))
			}
		}
		s.caches = max(s.caches, len(caches))
	}
	return s
}

const (
	placementHead = "# x\n"
	placementBusy = "\n## busy\n"
	placementRow  = "| file | plan | costs | Nova | costs | jumps |\n|---|---|---|---|---|---|\n"
)

// TestNovaPlacement compares the placement by Nova's own code of each golden plan's servers with the plan: the rows
// of measurements/openstack-placement.md.
func TestNovaPlacement(t *testing.T) {
	var asked []question
	var rows []*compared
	for _, busy := range []bool{false, true} {
		for _, file := range plans.Files(t, "../../plan") {
			if c := compare(t, file, busy); c != nil {
				rows = append(rows, c)
				threads := slices.ContainsFunc(c.plan.VMs, func(vm plan.VM) bool { return vm.Threads > 1 })
				asked = append(asked, question{novaHostOf(c.host, c.plan, c.others, threads), novaVMsOf(c.host, c.plan, c.request)})
			}
		}
	}
	var got []string
	for i, novas := range place(t, asked) {
		got = append(got, rows[i].row(novas))
	}
	text, err := os.ReadFile("../../../measurements/openstack-placement.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "| `") {
			want = append(want, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page's rows are to be:\n%s", strings.Join(got, "\n"))
	}
}

// TestNovaThreads: on a host whose dedicated CPUs are all threads of its cores, Nova finds no placement for isolate,
// and with prefer vCPUs share cores. With one thread per core the placement equals the plan.
func TestNovaThreads(t *testing.T) {
	c := compare(t, "../../plan/testdata/r910-32.yaml", false)
	vms := func(policy string) []novaVM {
		list := novaVMsOf(c.host, c.plan, c.request)
		for i := range list {
			list[i].Specs = maps.Clone(list[i].Specs)
			list[i].Specs["hw:cpu_thread_policy"] = policy
		}
		return list
	}
	all, one := novaHostOf(c.host, c.plan, nil, true), novaHostOf(c.host, c.plan, nil, false)
	got := place(t, []question{{all, vms("isolate")}, {all, vms("prefer")}, {one, vms("prefer")}})
	var cores []int // cores of the vCPUs
	for _, vms := range got {
		n := map[int]bool{}
		for _, id := range vms[0].CPUs {
			n[c.host.CPU(id).Core] = true
		}
		cores = append(cores, len(n))
	}
	if !slices.Equal(cores, []int{0, 16, 32}) {
		t.Errorf("cores of 32 vCPUs: %v", cores)
	}
}

// compared is a cluster file, its plan, and the plan's request for OpenStack.
type compared struct {
	name    string
	host    *topology.Host
	others  []int // CPUs of the host that another VM holds
	plan    *plan.Plan
	request *Request
}

// compare returns nil without a plan that pins vCPUs.
func compare(t *testing.T, file string, busy bool) *compared {
	t.Helper()
	spec, h := plans.Read(t, file)
	c := &compared{name: plans.Name(file), host: h}
	var held plan.Ledger
	if busy {
		c.others = first(h)
		held.Held = []plan.Held{{Host: h.Name, Cluster: "other", VM: "vm0", CPUs: c.others}}
	}
	var err error
	if c.plan, err = plan.Make(spec, []topology.Host{*h}, held); err != nil || len(c.plan.VMs[0].Pins) == 0 {
		return nil
	}
	if c.request, err = Make(c.plan, spec); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c
}

// first returns the CPUs of the first core of a host.
func first(h *topology.Host) []int {
	var ids []int
	core := -1
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Usable() && (core < 0 || c.Core == core) {
			core = c.Core
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func (c *compared) row(novas []placed) string {
	var ours []placed
	var cards [][]int
	for i := range c.plan.VMs {
		vm := &c.plan.VMs[i]
		var pins placed
		for _, pin := range vm.Pins {
			pins.CPUs = append(pins.CPUs, pin[0])
		}
		var at []int
		for _, d := range vm.Devices {
			if d.HostNode >= 0 {
				at = append(at, d.HostNode)
			}
		}
		ours, cards = append(ours, pins), append(cards, at)
	}
	a := see(c.host, ours, cards)
	n := slices.IndexFunc(novas, func(v placed) bool { return v.CPUs == nil })
	if n >= 0 {
		return fmt.Sprintf("| `%s` | %s | %s | vm%d: %s | |", c.name, strings.Join(a.nodes, "; "), a.costs(), n, novas[n].Why)
	}
	b := see(c.host, novas, cards)
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |", c.name, strings.Join(a.nodes, "; "), a.costs(), strings.Join(b.nodes, "; "), b.costs())
}

func (s seen) costs() string {
	card := "–"
	if s.card > 0 {
		card = fmt.Sprint(s.card)
	}
	return fmt.Sprintf("%d / %d / %s", s.far, s.caches, card)
}
