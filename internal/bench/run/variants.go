package run

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/spec"
	"nearmetal/internal/words"
)

// Untuned turns off what paper 004 calls tuning (figure 8): huge pages, pinning and NUMA memory control.
const Untuned = "untuned"

// untuned are its switches.
var untuned = []string{"hugepages", "pinning", "vnuma"}

// Switches are the switches of VMs that can be turned off, one at a time or joined by +, in the order of the help.
var Switches = []string{"hugepages", "pinning", "vnuma", "locality", "region", "vf"}

// switchOff has the change in a cluster file that turns a switch off, and its description; an error means that it is
// already off.
var switchOff = map[string]struct {
	words string
	off   func(c *spec.Cluster) error
}{
	"hugepages": {"ordinary pages instead of huge ones", func(c *spec.Cluster) error {
		return change(&c.Placement.Pages, "ordinary", "the VMs' memory has ordinary pages already (placement.pages)")
	}},
	"pinning": {"vCPUs that are not pinned", func(c *spec.Cluster) error {
		return change(&c.Placement.Pin, "never", "the VMs' vCPUs are not pinned (placement.pin)")
	}},
	"vnuma": {"one NUMA node in the VM, its memory interleaved over the host's", func(c *spec.Cluster) error {
		if c.Placement.Nodes == 1 {
			return fmt.Errorf("the VMs have one NUMA node already (placement.nodes)")
		}
		c.Placement.Nodes = 1
		return nil
	}},
	"locality": {"VMs spread over the host's NUMA nodes, far from their devices and each other", func(c *spec.Cluster) error {
		return change(&c.Placement.Policy, "spread", "the VMs are spread already (placement.policy)")
	}},
	"region": {"no memory shared between VMs: their messages take the network", func(c *spec.Cluster) error {
		if c.Region.Size != nil && *c.Region.Size == 0 {
			return fmt.Errorf("the VMs share no region (region.size)")
		}
		none := spec.Size(0)
		c.Region.Size = &none
		return nil
	}},
	"vf": {"no device passed through", func(c *spec.Cluster) error {
		found := false
		for i := range c.VMs {
			found = found || len(c.VMs[i].Devices) > 0
			c.VMs[i].Devices = nil
		}
		if !found {
			return fmt.Errorf("the VMs have no device passed through (vms[].devices)")
		}
		return nil
	}},
}

func change(field *string, to, already string) error {
	if *field == to {
		return fmt.Errorf("%s", already)
	}
	*field = to
	return nil
}

// Wish describes the requested variants.
type Wish struct {
	Native bool  // all cores of the host
	Cores  []int // additional native ones with that many cores
	VM     bool
	Ablate []string // additional VMs without these: a switch, several joined by +, or Untuned; each is a variant
	MPI    []mpi.Flavour
	// Spec of the VMs, defaults filled in. Emulated means that its instructions will be.
	Spec     *spec.Cluster
	Emulated bool
	// Hosts is the number of hosts of the VMs that are reached by ssh, and VCPUs the vCPUs of all of them; 0: they
	// are on this one.
	Hosts, VCPUs int
	// Host, and a CPU of each of its cores.
	Host record.Host
	CPUs []int
}

// Variants returns the variants of a wish in their order: for each MPI, first the native ones, with which the others
// of that MPI are compared.
func Variants(w Wish) ([]Variant, error) {
	var plain []Variant
	if w.Native {
		plain = append(plain, native(&w, len(w.CPUs)))
	}
	cores := append([]int(nil), w.Cores...)
	sort.Sort(sort.Reverse(sort.IntSlice(cores)))
	for _, n := range cores {
		if n < 1 || n > len(w.CPUs) {
			return nil, fmt.Errorf("--cores %d: this run may use %d cores of this host", n, len(w.CPUs))
		}
		if n != len(w.CPUs) || !w.Native {
			plain = append(plain, native(&w, n))
		}
	}
	if w.VM {
		plain = append(plain, virtual(&w, w.Spec, "", nil))
	}
	for _, name := range w.Ablate {
		v, err := ablated(&w, name)
		if err != nil {
			return nil, fmt.Errorf("--ablate %s: %w", name, err)
		}
		plain = append(plain, v)
	}
	if len(plain) == 0 {
		return nil, fmt.Errorf("no variant is asked for: give --variants native, vm or both")
	}
	return withMPI(plain, w.MPI), distinct(plain)
}

// ablated returns the VMs without the switches of a name.
func ablated(w *Wish, name string) (Variant, error) {
	c, err := spec.Clone(w.Spec)
	if err != nil {
		return Variant{}, err
	}
	names := strings.Split(name, "+")
	if name == Untuned {
		names = untuned
	}
	var off []string
	var already error
	for _, n := range names {
		s, ok := switchOff[n]
		if !ok {
			known := append(slices.Clone(Switches), Untuned)
			if near := spec.Nearest(n, known); near != "" {
				return Variant{}, fmt.Errorf("there is no switch %q: did you mean %s?", n, near)
			}
			return Variant{}, fmt.Errorf("there is no switch %q: there are %s", n, strings.Join(known, ", "))
		}
		err := s.off(c)
		switch {
		case err == nil:
			off = append(off, n)
		case name == Untuned: // a switch that is already off is untuned
			already = err
		default:
			return Variant{}, err
		}
	}
	if len(off) == 0 {
		return Variant{}, already
	}
	label := Untuned
	if name != Untuned {
		label = "no-" + strings.Join(off, "-")
	}
	return virtual(w, c, label, off), nil
}

// withMPI crosses variants with MPI flavours.
func withMPI(plain []Variant, flavours []mpi.Flavour) []Variant {
	var out []Variant
	for i, f := range flavours {
		base := ""
		for _, v := range plain {
			v.MPI, v.FirstMPI = f, i == 0
			v.Variant.MPI = f.Name
			if len(flavours) > 1 {
				v.Label += "." + f.Name
			}
			v.Description += ", " + f.Launcher.String()
			if strings.HasSuffix(f.Name, "ivshmem") {
				v.Description += " over the provider ivshmem"
			}
			if base == "" {
				base = v.Label
				if i > 0 && v.Kind == "native" { // MPIs are compared natively
					v.Baseline = out[0].Label
				}
			} else {
				v.Baseline = base
			}
			out = append(out, v)
		}
	}
	return out
}

func distinct(list []Variant) error {
	seen := map[string]bool{}
	for _, v := range list {
		if seen[v.Label] {
			return fmt.Errorf("the variant %s is asked for twice", v.Label)
		}
		seen[v.Label] = true
	}
	return nil
}

func native(w *Wish, cores int) Variant {
	v := Variant{Variant: record.Variant{
		Label: "native." + strconv.Itoa(cores), Kind: "native", Cores: cores,
		Description: fmt.Sprintf("natively on %s", words.Count(cores, "core", "cores")),
	}}
	if cores < len(w.CPUs) {
		v.CPUs = w.CPUs[:cores]
		v.KeptBack = len(w.CPUs) - cores
	}
	return v
}

// virtual returns the VM variant of a cluster file. Its label is that of paper 002: VM.CORES.GIB with the card's
// kind, followed by label for the switches turned off.
func virtual(w *Wish, c *spec.Cluster, label string, without []string) Variant {
	vms, cores, memory := 0, 0, spec.Size(0)
	net := ""
	for _, g := range c.VMs {
		vms += g.Count
		cores += g.Count * g.VCPUs
		memory += spec.Size(g.Count) * g.Memory
		for _, d := range g.Devices {
			switch d.Class {
			case "infiniband":
				net = ".IB"
			case "ethernet":
				net = ".RoCE"
			}
			if d.Type == "vf" {
				net += ".VF"
			} else {
				net += ".Passthru"
			}
			break
		}
	}
	room := max(1, len(w.CPUs)-c.Placement.Reserve)
	if cores == 0 { // divided among the VMs
		cores = max(vms, room/max(1, vms)*vms)
	}
	in := fmt.Sprintf("in %s with %s and %d MiB in all", words.Count(vms, "VM", "VMs"), words.Count(cores, "vCPU", "vCPUs"), memory>>20)
	if w.Hosts > 0 { // the label and the record describe one host
		in = fmt.Sprintf("in %s with %s and %d MiB in all, shared out evenly over %s", words.Count(vms, "VM", "VMs"),
			words.Count(w.VCPUs, "vCPU", "vCPUs"), memory>>20, words.Count(w.Hosts, "host", "hosts"))
		vms, cores, memory = vms/w.Hosts, w.VCPUs/w.Hosts, memory/spec.Size(w.Hosts)
	}
	v := Variant{Spec: c, Hosts: w.Hosts, Variant: record.Variant{
		Kind: "vm", Cores: cores, KeptBack: max(0, len(w.CPUs)-cores), Emulated: w.Emulated,
		MemoryBytes: int64(memory), VMs: vms,
		Label:       fmt.Sprintf("VM.%d.%d%s", cores, memory>>30, net),
		Description: in,
	}}
	if label != "" {
		v.Label += "." + label
		v.Ablated = without
		for _, name := range without {
			v.Description += ", " + switchOff[name].words
		}
	}
	return v
}

// Only returns the native variants of a list, and the VM variant with a label, for any MPI.
func Only(list []Variant, label string) []Variant {
	spec := ""
	for _, v := range list {
		if v.Label == label {
			spec = strings.Join(v.Ablated, "+")
		}
	}
	return slices.DeleteFunc(list, func(v Variant) bool { return v.Spec != nil && strings.Join(v.Ablated, "+") != spec })
}
