package openstack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fit describes how well an existing flavor matches a requested one.
type Fit struct {
	Flavor string `json:"flavor" yaml:"flavor"`
	Fits   bool   `json:"fits" yaml:"fits"` // unchanged, or with Image
	// Lacks lists the requested properties that the flavor does not guarantee, one line each.
	Lacks []string `json:"lacks,omitempty" yaml:"lacks,omitempty"`
	// Image lists the image properties with which it fits: a tenant may set those that the flavor leaves open.
	Image map[string]string `json:"image,omitempty" yaml:"image,omitempty"`
	// Without lists the properties that the flavor does not guarantee and that MPI does not need, one line each:
	// their lack costs speed.
	Without []string `json:"without,omitempty" yaml:"without,omitempty"`
	// Over lists the flavor's excess over the request, one line each: it uses quota, and does no harm.
	Over []string `json:"over,omitempty" yaml:"over,omitempty"`
}

// fromImage are extra specs that an image can set if the flavor does not (nova/virt/hardware.py). The page size is
// not one of them, because Nova rejects an image's page size if the flavor has none.
var fromImage = map[string]string{
	"hw:cpu_policy":               "hw_cpu_policy",
	"hw:cpu_thread_policy":        "hw_cpu_thread_policy",
	"hw:cpu_sockets":              "hw_cpu_sockets",
	"hw:cpu_cores":                "hw_cpu_cores",
	"hw:cpu_threads":              "hw_cpu_threads",
	"hw:numa_nodes":               "hw_numa_nodes",
	"hw:viommu_model":             "hw_viommu_model",
	"hw:pci_numa_affinity_policy": "hw_pci_numa_affinity_policy",
}

// means states the cost of a missing extra spec.
var means = map[string]string{
	"hw:cpu_policy":               "vCPUs float over the host's CPUs and share them with other tenants",
	"hw:cpu_thread_policy":        "vCPUs that are threads of a core need not be on one core, or two that are not share one",
	"hw:numa_nodes":               "the guest sees one node where there are several, or several that are one",
	"hw:mem_page_size":            "ordinary pages: more TLB misses",
	"hw:pci_numa_affinity_policy": "the card may be on another node than the VM",
	"hw:emulator_threads_policy":  "QEMU's own threads run on the vCPUs' CPUs",
	"hw:viommu_model":             "vCPUs above 255 do not start",
	"pci_passthrough:alias":       "no card is passed through",
}

// Match compares a requested flavor with a cloud's flavors and returns these best first: those that fit, the smallest
// first; then those that lack the least.
func Match(want Flavor, have []Flavor) []Fit {
	fits := make([]Fit, 0, len(have))
	size := map[string]uint64{}
	for i := range have {
		fits = append(fits, match(want, have[i]))
		size[have[i].Name] = uint64(have[i].VCPUs)<<32 + have[i].RAMMiB
	}
	slices.SortStableFunc(fits, func(a, b Fit) int {
		return cmp.Or(cmp.Compare(len(a.Lacks), len(b.Lacks)), cmp.Compare(len(a.Without), len(b.Without)), cmp.Compare(len(a.Image), len(b.Image)), cmp.Compare(size[a.Flavor], size[b.Flavor]), cmp.Compare(a.Flavor, b.Flavor))
	})
	return fits
}

func match(want, have Flavor) Fit {
	f := Fit{Flavor: have.Name}
	lacks := func(format string, a ...any) { f.Lacks = append(f.Lacks, fmt.Sprintf(format, a...)) }
	// vCPUs and nodes define a shape: more of them are a different machine.
	if have.VCPUs != want.VCPUs {
		lacks("%d vCPUs: the plan has %d", have.VCPUs, want.VCPUs)
	}
	switch {
	case have.RAMMiB < want.RAMMiB:
		lacks("%d MiB of memory: the plan has %d", have.RAMMiB, want.RAMMiB)
	case have.RAMMiB > want.RAMMiB:
		f.Over = append(f.Over, fmt.Sprintf("%d MiB more memory", have.RAMMiB-want.RAMMiB))
	}
	for _, key := range Keys(want.Specs) {
		need, has := want.Specs[key], have.Specs[key]
		switch {
		case same(key, need, has, want, have):
		case key == RegionSpec:
			f.Without = append(f.Without, "no region of "+need+": MPI between VMs of a host uses the network")
		case has == "" && fromImage[key] != "":
			if f.Image == nil {
				f.Image = map[string]string{}
			}
			f.Image[fromImage[key]] = need
		case has == "":
			lacks("%s=%s is not there: %s", key, need, meansOf(key))
		default:
			lacks("%s=%.80s: the plan has %s: %s", key, strconv.Quote(has), need, meansOf(key))
		}
	}
	for _, key := range Keys(have.Specs) {
		if _, asked := want.Specs[key]; !asked && strings.HasPrefix(key, "hw:numa_") {
			lacks("%s=%.80s: the plan leaves it to Nova", key, strconv.Quote(have.Specs[key]))
		}
	}
	if want.Specs["hw:cpu_policy"] != "dedicated" && have.Specs["hw:cpu_policy"] == "dedicated" {
		f.Over = append(f.Over, "CPUs of its own")
	}
	f.Fits = len(f.Lacks) == 0
	if !f.Fits {
		f.Image = nil // with them it does not fit either
	}
	return f
}

func meansOf(key string) string {
	if m, ok := means[key]; ok {
		return m
	}
	if strings.HasPrefix(key, "hw:numa_") {
		return "Nova shares vCPUs and memory out over the nodes evenly"
	}
	return "sockets, cores and threads look otherwise"
}

// same reports whether the flavor's value satisfies the request.
func same(key, need, has string, want, have Flavor) bool {
	if need == has {
		return true
	}
	switch key {
	case "hw:cpu_policy":
		return need == "shared" // Nova's default; dedicated is also sufficient
	case "hw:mem_page_size":
		return pageKiB(need) == pageKiB(has) || has == "large"
	case "hw:cpu_thread_policy":
		return need == "prefer" && (has == "" || has == "isolate") // Nova's default; isolate is for hosts without SMT
	case "hw:pci_numa_affinity_policy":
		return has == "required"
	case "hw:numa_nodes":
		return need == "1" && has == "" && have.Specs["hw:cpu_policy"] == "dedicated" // Nova makes one
	}
	if node, ok := strings.CutPrefix(key, "hw:numa_cpus."); ok && has == "" {
		return evenly(want, node)
	}
	if node, ok := strings.CutPrefix(key, "hw:numa_mem."); ok && has == "" {
		return evenly(want, node)
	}
	return false
}

// evenly reports whether a node of a flavor equals Nova's default: equal parts of the vCPUs, in order, and of the
// memory.
func evenly(f Flavor, node string) bool {
	nodes, err1 := strconv.Atoi(f.Specs["hw:numa_nodes"])
	k, err2 := strconv.Atoi(node)
	if err1 != nil || err2 != nil || nodes < 1 || f.VCPUs%nodes != 0 || f.RAMMiB%uint64(nodes) != 0 {
		return false
	}
	each := f.VCPUs / nodes
	cpus := strconv.Itoa(k * each)
	if each > 1 {
		cpus = fmt.Sprintf("%d-%d", k*each, (k+1)*each-1)
	}
	return f.Specs["hw:numa_cpus."+node] == cpus && f.Specs["hw:numa_mem."+node] == strconv.FormatUint(f.RAMMiB/uint64(nodes), 10)
}

// pageKiB parses a page size as Nova does: a number of KiB, or with a unit. 0: none, or a word.
func pageKiB(s string) uint64 {
	digits := strings.TrimRight(s, "KMGTiBb ")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0
	}
	switch unit := strings.ToUpper(strings.TrimSpace(s[len(digits):])); {
	case strings.HasPrefix(unit, "M"):
		n <<= 10
	case strings.HasPrefix(unit, "G"):
		n <<= 20
	}
	return n
}

// SoleLack returns the only property that the nearest flavor lacks, or the one that every flavor lacks, as the end of
// a sentence; "": none. The flavors are a result of Match.
func SoleLack(flavors []Fit) string {
	if len(flavors) == 0 {
		return ""
	}
	best := flavors[0]
	if len(best.Lacks) == 1 {
		return ": " + best.Flavor + " lacks only this: " + best.Lacks[0]
	}
	var common []string
	for _, l := range best.Lacks {
		if !slices.ContainsFunc(flavors, func(f Fit) bool { return !slices.Contains(f.Lacks, l) }) {
			common = append(common, l)
		}
	}
	if len(common) != 1 {
		return ""
	}
	what, _, _ := strings.Cut(common[0], " is not there: ")
	return ": every flavor lacks " + what
}
