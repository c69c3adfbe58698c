package cloud

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Pick returns the flavor of an instance from a list: the only one, or the one with its name.
func Pick(list []openstack.Flavor, i *Instance) (*openstack.Flavor, error) {
	if len(list) == 1 {
		return &list[0], nil
	}
	if i.Flavor == "" {
		return nil, fmt.Errorf("%d flavors, and this VM's metadata does not say which one is its own: give that one alone (openstack flavor show NAME -f json)", len(list))
	}
	for k := range list {
		if list[k].Name == i.Flavor {
			return &list[k], nil
		}
	}
	return nil, fmt.Errorf("%d flavors, and none is this VM's %s", len(list), i.Flavor)
}

// maxVCPUs and maxNodes bound the promises of a flavor.
const (
	maxVCPUs = 4096
	maxNodes = 256
)

// promised returns the VM that a flavor promises, as far as its nodes are concerned.
func promised(f *openstack.Flavor, name string) (plan.VM, error) {
	vm := plan.VM{Name: name, VCPUs: f.VCPUs, MemoryBytes: f.RAMMiB << 20}
	if f.VCPUs < 1 || f.VCPUs > maxVCPUs || f.RAMMiB < 1 || f.RAMMiB > 1<<31 {
		return vm, fmt.Errorf("flavor %.80q: %d vCPUs and %d MiB are not a VM", f.Name, f.VCPUs, f.RAMMiB)
	}
	n := 1
	if s := f.Specs["hw:numa_nodes"]; s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxNodes || n > f.VCPUs {
			return vm, fmt.Errorf("flavor %.80q: hw:numa_nodes=%.20q is not a number of nodes", f.Name, s)
		}
	}
	for k := 0; k < n; k++ {
		node := plan.Node{ID: k, MemoryBytes: vm.MemoryBytes / uint64(n)}
		for c := k * f.VCPUs / n; c < (k+1)*f.VCPUs/n; c++ {
			node.VCPUs = append(node.VCPUs, c)
		}
		if s := f.Specs[fmt.Sprint("hw:numa_cpus.", k)]; s != "" {
			list, err := topology.ParseList(s, f.VCPUs)
			if err != nil {
				return vm, fmt.Errorf("flavor %.80q: hw:numa_cpus.%d: %w", f.Name, k, err)
			}
			node.VCPUs = list
		}
		if s := f.Specs[fmt.Sprint("hw:numa_mem.", k)]; s != "" {
			mib, err := strconv.ParseUint(s, 10, 31)
			if err != nil {
				return vm, fmt.Errorf("flavor %.80q: hw:numa_mem.%d=%.20q is not a number of MiB", f.Name, k, s)
			}
			node.MemoryBytes = mib << 20
		}
		vm.Nodes = append(vm.Nodes, node)
	}
	return vm, nil
}

// region returns the region that a flavor promises; nil: none.
func region(f *openstack.Flavor) (*plan.Region, error) {
	s := f.Specs[openstack.RegionSpec]
	if s == "" {
		return nil, nil
	}
	n, err := spec.ParseSize(s)
	if err != nil {
		return nil, fmt.Errorf("flavor %.80q: %s: %w", f.Name, openstack.RegionSpec, err)
	}
	return &plan.Region{Device: "ivshmem", SizeBytes: uint64(n)}, nil
}

// functions returns how many PCI functions a flavor's aliases promise.
func functions(f *openstack.Flavor) (int, error) {
	n := 0
	for _, part := range strings.Split(f.Specs["pci_passthrough:alias"], ",") {
		if part == "" {
			continue
		}
		_, count, ok := strings.Cut(part, ":")
		k, err := strconv.Atoi(count)
		if !ok {
			k, err = 1, nil
		}
		if err != nil || k < 1 || k > 256 {
			return 0, fmt.Errorf("flavor %.80q: pci_passthrough:alias=%.80q is not understood", f.Name, part)
		}
		n += k
	}
	return n, nil
}
