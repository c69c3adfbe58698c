package openstack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// flavorOf returns the flavor of a VM, without a name. The keys are those of Nova's extra specs.
func flavorOf(vm *plan.VM, c *spec.Cluster) (Flavor, error) {
	if vm.MemoryBytes%(1<<20) != 0 {
		return Flavor{}, fmt.Errorf("memory of %d bytes: a flavor has whole MiB", vm.MemoryBytes)
	}
	s := map[string]string{
		"hw:cpu_sockets": strconv.Itoa(vm.Sockets),
		"hw:cpu_cores":   strconv.Itoa(vm.Dies * vm.Cores),
		"hw:cpu_threads": strconv.Itoa(vm.Threads),
	}
	f := Flavor{VCPUs: vm.VCPUs, RAMMiB: vm.MemoryBytes >> 20, Specs: s}
	if len(vm.Pins) > 0 {
		s["hw:cpu_policy"] = "dedicated"
		// "isolate" would request a core for each vCPU, and Nova rejects all hosts with SMT for it.
		s["hw:cpu_thread_policy"] = "prefer"
		if vm.Threads > 1 {
			s["hw:cpu_thread_policy"] = "require"
		}
		if len(vm.EmulatorCPUs) > 0 {
			s["hw:emulator_threads_policy"] = "share" // on [compute] cpu_shared_set of the host
		}
	} else {
		s["hw:cpu_policy"] = "shared"
	}
	nodes, err := withCPUs(vm, &f)
	if err != nil {
		return Flavor{}, err
	}
	if len(nodes) > 0 {
		s["hw:numa_nodes"] = strconv.Itoa(len(nodes))
	} else if len(vm.Pins) > 0 {
		s["hw:numa_nodes"] = "1"
	}
	if len(nodes) > 1 {
		for k, n := range nodes {
			s[fmt.Sprint("hw:numa_cpus.", k)] = topology.FormatList(n.VCPUs)
			s[fmt.Sprint("hw:numa_mem.", k)] = strconv.FormatUint(n.MemoryBytes>>20, 10)
		}
	}
	if page := pageOf(vm); page > 0 {
		s["hw:mem_page_size"] = pageText(page)
	}
	if len(vm.Devices) > 0 {
		s["hw:pci_numa_affinity_policy"] = "preferred"
		if besideCards(vm) {
			s["hw:pci_numa_affinity_policy"] = "required"
		}
	}
	counts := map[string]int{}
	for k, d := range vm.Devices {
		if byAlias(d, k, vm, c) {
			counts[alias(d)]++
		}
	}
	if len(counts) > 0 {
		var list []string
		for name, n := range counts {
			list = append(list, fmt.Sprintf("%s:%d", name, n))
		}
		slices.Sort(list)
		s["pci_passthrough:alias"] = strings.Join(list, ",")
	}
	if lower.Of(vm).IOMMU {
		s["hw:viommu_model"] = "intel"
	}
	return f, nil
}

// besideCards reports whether each device of a VM is on one of the VM's host nodes. Nova finds no host for a device
// that is required there and is on a neighbouring node.
func besideCards(vm *plan.VM) bool {
	return !slices.ContainsFunc(vm.Devices, func(d plan.Device) bool {
		beside := func(n plan.Node) bool { return slices.Contains(n.HostNodes, d.HostNode) }
		return d.HostNode < 0 || len(vm.Nodes) > 0 && !slices.ContainsFunc(vm.Nodes, beside)
	})
}

// withCPUs returns a VM's nodes that have vCPUs, and subtracts the memory of the others from the flavor, because Nova
// has no nodes without vCPUs.
func withCPUs(vm *plan.VM, f *Flavor) ([]plan.Node, error) {
	var nodes []plan.Node
	for _, n := range vm.Nodes {
		if len(n.VCPUs) == 0 {
			f.RAMMiB -= min(f.RAMMiB, n.MemoryBytes>>20)
			continue
		}
		if n.MemoryBytes == 0 {
			return nil, fmt.Errorf("node %d has vCPUs and no memory: Nova has no such node", n.ID)
		}
		nodes = append(nodes, n)
	}
	if f.RAMMiB == 0 {
		return nil, fmt.Errorf("all of its memory is on nodes without vCPUs: Nova has no such node")
	}
	return nodes, nil
}

// pageOf returns the page size of a VM's memory in bytes, the smallest if its nodes differ, because Nova has one for
// all nodes. 0: ordinary pages.
func pageOf(vm *plan.VM) uint64 {
	var page uint64
	for i, n := range vm.Nodes {
		if i == 0 || n.PageBytes < page {
			page = n.PageBytes
		}
	}
	if page <= 4096 {
		return 0
	}
	return page
}

// pageText formats a page size for Nova.
func pageText(bytes uint64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%dGB", bytes>>30)
	}
	return fmt.Sprintf("%dMB", bytes>>20)
}

// byAlias reports whether device k of a VM is requested by a PCI alias of the flavor: functions named by their
// address, and InfiniBand cards, for which Neutron has no ports of its own. Others are requested by ports.
func byAlias(d plan.Device, k int, vm *plan.VM, c *spec.Cluster) bool {
	if d.PF == "" {
		return true
	}
	first := 0
	for i := range c.VMs {
		g := &c.VMs[i]
		if vm.Index < first || vm.Index >= first+g.Count {
			first += g.Count
			continue
		}
		for _, want := range g.Devices {
			if k -= max(want.Count, 1); k < 0 {
				return want.Class == "infiniband"
			}
		}
	}
	return false
}

// alias returns the name of the PCI alias of a device: the address of its PF or its own, without characters that an
// alias cannot have.
func alias(d plan.Device) string {
	name := d.PF
	if name == "" {
		name = "pci-" + d.Address
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name)
}

// aliases returns the names of all PCI aliases of a plan, in order.
func aliases(p *plan.Plan, c *spec.Cluster) []string {
	var list []string
	for i := range p.VMs {
		for k, d := range p.VMs[i].Devices {
			if byAlias(d, k, &p.VMs[i], c) {
				list = append(list, alias(d))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
