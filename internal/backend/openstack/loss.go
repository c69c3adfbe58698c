package openstack

import (
	"fmt"
	"slices"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/words"
)

// Loss is a part of a plan that OpenStack does not guarantee.
type Loss struct {
	Part  string `json:"part" yaml:"part"`   // of the plan
	Why   string `json:"why" yaml:"why"`     // what Nova offers or lacks
	Means string `json:"means" yaml:"means"` // consequence for the program, or what to do
}

// lost returns the parts of a plan that OpenStack does not guarantee, each once, the costly ones first.
func lost(p *plan.Plan, c *spec.Cluster) []Loss {
	any := func(f func(vm *plan.VM) bool) bool {
		return slices.ContainsFunc(p.VMs, func(vm plan.VM) bool { return f(&vm) })
	}
	var list []Loss
	add := func(when bool, part, why, means string) {
		if when {
			list = append(list, Loss{part, why, means})
		}
	}
	pinned := any(func(vm *plan.VM) bool { return len(vm.Pins) > 0 })
	add(pinned, "which CPUs", "Nova chooses CPUs of the node itself, in no order",
		"neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number")
	add(any(func(vm *plan.VM) bool { return len(vm.Pins) > 0 && vm.Threads == 1 }), "a core for each vCPU", "Nova's policy for that, isolate, finds no host that has SMT",
		"on hosts with SMT cpu_dedicated_set has to have one thread of each core: else two vCPUs share a core")
	add(any(func(vm *plan.VM) bool { return len(vm.L3) > 1 || vm.Dies > 1 }), "last-level caches and dies", "Nova refuses hw:cpu_dies, and shows one cache a socket",
		"an MPI that maps ranks by cache maps them wrongly: map by core")
	add(any(func(vm *plan.VM) bool {
		return slices.ContainsFunc(vm.Nodes, func(n plan.Node) bool { return len(n.Distances) > 0 && len(vm.Nodes) > 2 })
	}), "distances of nodes", "Nova has no distances: all remote nodes look alike", "numactl -H shows 20 for each; allocation falls back in the order of numbers")
	add(any(func(vm *plan.VM) bool {
		return len(vm.Nodes) > 1 && slices.ContainsFunc(vm.Devices, func(d plan.Device) bool { return d.Node >= 0 })
	}), "a device's node in the guest", "Nova puts the VM beside the card, and shows the card on no node", "bind ranks to the node that measures nearest to the card (docs/openstack.md)")
	add(any(func(vm *plan.VM) bool {
		return slices.ContainsFunc(vm.Nodes, func(n plan.Node) bool { return len(n.VCPUs) == 0 })
	}), "nodes of memory only", "Nova refuses a node without vCPUs", "HBM or CXL memory of that kind is not in the VM; its size is taken off the flavor")
	add(any(func(vm *plan.VM) bool {
		return slices.ContainsFunc(vm.Nodes, func(n plan.Node) bool { return len(n.HostNodes) > 1 })
	}), "memory interleaved over host nodes", "Nova puts each guest node on one host node", "ask for as many guest nodes as host nodes")
	add(any(mixedPages), "a page size for each node", "Nova has one for all nodes", fmt.Sprintf("the flavor has the smallest, %s", smallest(p)))
	add(pinned && c.Placement.Policy != "auto", "placement.policy", "Nova has one for each compute host, not for a flavor: packing_host_numa_cells_allocation_strategy",
		"ask the administrator which it is")
	add(len(c.Placement.HostNodes) > 0, "placement.hostNodes", "a flavor names no node", "the VM may be on any")
	add(pinned && c.Placement.Reserve > 0, "placement.reserve", "the administrator keeps cores for the host by cpu_dedicated_set", "nothing to do in a flavor")
	add(any(func(vm *plan.VM) bool { return lower.Of(vm).PhysBits != 0 }), "width of addresses", "Nova takes it from the image only (from 2023.1 on)", "the image below has it; an earlier Nova shows 40 bits and the card's BARs do not fit")
	add(p.Region != nil, "the region", "Nova has no memory between VMs: its hosts need nearmetal host openstack-region install", "else MPI between VMs of a host uses the network: have one VM a host")
	add(c.Root != spec.RootBackend, "root: "+rootWord(c.Root), "a server starts from an image", "put the MPI library and the program into the image")
	add(len(c.Shares) > 0 || c.Home == "share", "shares", "Nova has them by Manila's virtiofs only (from 2025.1 on, with the server off)", "mount a file system of the network's in the guest")
	return list
}

func rootWord(root string) string {
	if root == "host" {
		return root
	}
	return "a directory"
}

// mixedPages reports whether the nodes of a VM have pages of different sizes.
func mixedPages(vm *plan.VM) bool {
	return slices.ContainsFunc(vm.Nodes, func(n plan.Node) bool { return n.PageBytes != vm.Nodes[0].PageBytes })
}

// smallest returns the page size for flavors of VMs with mixed pages.
func smallest(p *plan.Plan) string {
	for i := range p.VMs {
		if vm := &p.VMs[i]; mixedPages(vm) {
			if page := pageOf(vm); page > 0 {
				return words.Bytes(page)
			}
		}
	}
	return "ordinary pages"
}
