package plan

import (
	"fmt"
	"math/rand"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

var alternative = regexp.MustCompile(`^(\d+) VMs?(?: of group (\w+))?(?: of (\d+) vCPUs?)?(?: (?:and|of) ([\d.]+) (GiB|MiB))?$`)

// TestWhatFitsDoes: every request that an error lists behind "fits:" does fit. If CPUs are short it fits on CPUs of
// its own, and not only with placement.strict.
func TestWhatFitsDoes(t *testing.T) {
	named := 0
	for seed := 0; seed < 800; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		h, c := randomHost(r), randomCluster(r)
		c.Accel = "kvm"
		c.Placement.Strict, c.Placement.Pin = r.Intn(2) == 0, []string{"auto", "always"}[r.Intn(2)]
		c.Placement.SMT = []string{"auto", "isolate", "prefer"}[r.Intn(3)]
		for g := range c.VMs {
			c.VMs[g].VCPUs *= 1 + r.Intn(4)
			c.VMs[g].Memory += spec.Size(r.Intn(4)) * 100 << 20
		}
		hosts := []topology.Host{h}
		text := ""
		p, err := Make(c, hosts, Ledger{})
		if err != nil {
			text = err.Error()
		} else {
			text = strings.Join(p.Warnings, "\n")
		}
		_, list, ok := strings.Cut(text, "; fits: ")
		if !ok {
			continue
		}
		list, _, _ = strings.Cut(list, "\n")
		for _, alt := range strings.Split(list, ", or ") {
			f := alternative.FindStringSubmatch(alt)
			if f == nil {
				t.Fatalf("seed %d: %q in %q", seed, alt, text)
			}
			ask := *c
			ask.VMs = append([]spec.Group(nil), c.VMs...)
			for g := range ask.VMs {
				v := &ask.VMs[g]
				if f[2] != "" && f[2] != v.Name {
					continue
				}
				v.Count, _ = strconv.Atoi(f[1])
				if f[3] != "" {
					v.VCPUs, _ = strconv.Atoi(f[3])
				}
				if f[4] != "" && f[3] == "" {
					n, _ := strconv.ParseFloat(f[4], 64)
					v.Memory = spec.Size(n * float64(map[string]uint64{"GiB": 1 << 30, "MiB": 1 << 20}[f[5]]))
				}
			}
			named++
			q, err := Make(&ask, hosts, Ledger{})
			if err != nil {
				t.Errorf("seed %d: %q is said to fit:\n%s\nbut %v", seed, alt, text, err)
			} else if p != nil && len(q.VMs[0].Pins) == 0 {
				t.Errorf("seed %d: %q is said to fit:\n%s\nbut it is not pinned either: %q", seed, alt, text, q.Warnings)
			}
		}
	}
	t.Logf("%d requests named", named)
	if named < 150 {
		t.Error("too few to show anything")
	}
}

// TestFitsWithoutStrict: if CPUs are short without placement.strict, an error does not list a request that lacks as
// many CPUs.
func TestFitsWithoutStrict(t *testing.T) {
	h := []topology.Host{machine(t, "genoa-cxl")}
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 32, Memory: 400 << 30}), h, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(p.Warnings, "\n"); !strings.Contains(w, "not pinned") || strings.Contains(w, "31 vCPUs") || !strings.Contains(w, "fits: 1 VM of 36") {
		t.Error(w)
	}
}

// TestNotMultiple: the error for memory that is not a multiple of the free pages' size reports the reason, and a size
// that is a multiple.
func TestNotMultiple(t *testing.T) {
	h := []topology.Host{machine(t, "dl380g8")}
	for _, place := range []spec.Placement{{}, {Pages: "1GiB"}, {Strict: true}, {Pages: "huge"}} {
		_, err := Make(clusterOf(place, spec.Group{Count: 1, VCPUs: 4, Memory: 24064 << 20}), h, Ledger{})
		if err == nil || !strings.Contains(err.Error(), "120 GiB are free in 1 GiB pages, but 23.5 GiB is not a multiple of 1 GiB: ask for 24GiB") {
			t.Errorf("%+v: %v", place, err)
		}
	}
	if _, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 4, Memory: 24 << 30}), h, Ledger{}); err != nil {
		t.Error(err)
	}
}

// TestHybrid: VMs on a hybrid host use one kind of core, and the plan reports it; mixed kinds only if requested.
func TestHybrid(t *testing.T) {
	h, err := topology.Open("../topology/testdata/hybrid.tar.gz") // CPUs 0-3: two P-cores with two threads; 4-7: E-cores
	if err != nil {
		t.Fatal(err)
	}
	hosts := []topology.Host{*h}
	for _, c := range []struct {
		place   spec.Placement
		count   int
		vcpus   int
		pins    string // of all VMs; "": not pinned
		said    string
		warning string
	}{
		{spec.Placement{}, 1, 2, "0,2", "all VMs run on P-cores", ""},
		{spec.Placement{}, 1, 3, "4-6", "all VMs run on E-cores", ""},
		{spec.Placement{}, 2, 2, "4-7", "all VMs run on E-cores", ""},
		{spec.Placement{SMT: "prefer"}, 1, 4, "0-3", "all VMs run on P-cores", ""},
		{spec.Placement{}, 1, 0, "0,2", "all VMs run on P-cores", ""},
		{spec.Placement{}, 2, 3, "", "", "vCPUs move between P-cores and E-cores"},
		{spec.Placement{}, 2, 3, "", "", "only P-cores counted: placement.cores: any takes all"},
		{spec.Placement{Cores: "any"}, 2, 3, "0,2,4-7", "", "vCPUs of vm0: 2 on P-cores, 1 on E-cores"},
	} {
		t.Run(fmt.Sprint(c.place.Cores, c.count, "x", c.vcpus), func(t *testing.T) {
			p, err := Make(clusterOf(c.place, spec.Group{Count: c.count, VCPUs: c.vcpus, Memory: 1 << 30}), hosts, Ledger{})
			if err != nil {
				t.Fatal(err)
			}
			used := map[int]bool{}
			var pins []int
			for _, vm := range p.VMs {
				for _, pin := range vm.Pins {
					used[pin[0]] = true
				}
			}
			for id := 0; id < 8; id++ {
				if used[id] {
					pins = append(pins, id)
				}
			}
			if got := topology.FormatList(pins); got != c.pins {
				t.Errorf("pinned to %s, want %s", got, c.pins)
			}
			if s := strings.Join(p.Reasons, "\n"); !strings.Contains(s, c.said) {
				t.Errorf("reasons %s, want %q", s, c.said)
			}
			if s := strings.Join(p.Warnings, "\n"); !strings.Contains(s, c.warning) || c.warning == "" && s != "" {
				t.Errorf("warnings %s, want %q", s, c.warning)
			}
			holds(t, p, map[string]*topology.Host{h.Name: h})
		})
	}
}

// TestCoresWithoutMemory: cores of a node without memory are planned with the nearest node's memory if no other cores
// are free, and the plan reports it.
func TestCoresWithoutMemory(t *testing.T) {
	h, err := topology.Open("../topology/testdata/cores-without-memory.tar.bz2")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 4, Memory: 2 << 30}), []topology.Host{*h}, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	vm := &p.VMs[0]
	if fmt.Sprint(vm.Pins) != "[[0] [1] [2] [3]]" || len(vm.Nodes) != 1 || fmt.Sprint(vm.Nodes[0].HostNodes) != "[0]" {
		t.Errorf("%+v", vm)
	}
	if s := strings.Join(p.Warnings, "\n"); !strings.Contains(s, "node 1 has cores and no memory: VMs there have the memory of node 0, distance 20") {
		t.Error(s)
	}
}

// TestNeverPlanned: no VM gets CPUs that are on no node, and QEMU's own threads do not get them by chance; GPU memory
// is never planned.
func TestNeverPlanned(t *testing.T) {
	h := machine(t, "genoa-cxl")
	h.Nodes[2].GPU = "0009:01:00.0"
	h.CPUs[5].Node = -1
	hosts := []topology.Host{h}
	for _, place := range []spec.Placement{{MemoryNodes: []int{2}, MemoryNodeSize: 1 << 30}, {HostNodes: []int{0, 2}}} {
		_, err := Make(clusterOf(place, spec.Group{Count: 1, VCPUs: 4, Memory: 4 << 30}), hosts, Ledger{})
		if err == nil || !strings.Contains(err.Error(), "node 2 of genoa-cxl is the memory of GPU 0009:01:00.0") {
			t.Errorf("%+v: %v", place, err)
		}
	}
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 63, Memory: 63 << 30}), hosts, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range p.VMs {
		for _, pin := range vm.Pins {
			if pin[0] == 5 {
				t.Error("pinned to CPU 5, which is on no node")
			}
		}
		for _, n := range vm.Nodes {
			for _, id := range n.HostNodes {
				if id == 2 {
					t.Error("memory of a GPU")
				}
			}
		}
	}
}
