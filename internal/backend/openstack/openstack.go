// Package openstack converts a plan into requests for OpenStack: flavors, image properties, ports and a server group,
// and the parts of the plan that are lost. It contacts no cloud and starts nothing.
package openstack

import (
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// RegionSpec is the extra spec of a flavor with the size of a region shared by its VMs. Nova accepts and ignores it;
// the hook on compute hosts reads it (package hook).
const RegionSpec = "nearmetal:region"

// Request lists a cluster's needs of OpenStack. Only an administrator can make flavors; everything else is within a
// tenant's rights.
type Request struct {
	Cluster string   `json:"cluster" yaml:"cluster"`
	Flavors []Flavor `json:"flavors" yaml:"flavors"`
	// Image lists properties that the servers' image needs.
	Image map[string]string `json:"image,omitempty" yaml:"image,omitempty"`
	Group *Group            `json:"serverGroup,omitempty" yaml:"serverGroup,omitempty"` // nil: none
	// Servers are the VMs, in the plan's order.
	Servers []Server `json:"servers" yaml:"servers"`
	// Aliases are PCI aliases that nova.conf has to define, for both nova-api and nova-compute.
	Aliases []string `json:"pciAliases,omitempty" yaml:"pciAliases,omitempty"`
	// Lost lists the parts of the plan that OpenStack does not guarantee.
	Lost []Loss `json:"lost,omitempty" yaml:"lost,omitempty"`
}

// Flavor is a flavor with its extra specs.
type Flavor struct {
	Name   string            `json:"name" yaml:"name"`
	VCPUs  int               `json:"vcpus" yaml:"vcpus"`
	RAMMiB uint64            `json:"ramMiB" yaml:"ramMiB"`
	Specs  map[string]string `json:"extraSpecs,omitempty" yaml:"extraSpecs,omitempty"`
}

// Group is a server group: the servers of one host belong together.
type Group struct {
	Name   string `json:"name" yaml:"name"`
	Policy string `json:"policy" yaml:"policy"` // a policy of Nova: affinity, soft-affinity, soft-anti-affinity
}

// Server is one VM.
type Server struct {
	Name   string `json:"name" yaml:"name"`
	Flavor string `json:"flavor" yaml:"flavor"`
	Ports  []Port `json:"ports,omitempty" yaml:"ports,omitempty"` // in addition to the port on the tenant's network
}

// Port is a Neutron port that is a virtual function.
type Port struct {
	Name string `json:"name" yaml:"name"`
	VNIC string `json:"vnicType" yaml:"vnicType"` // "direct"
	PF   string `json:"pf,omitempty" yaml:"pf,omitempty"`
}

// ServerName returns the name of a VM's server. The region's hook on compute hosts treats the part before the last
// dash as the group, so a VM's own dashes become underscores: io-node of demo is in group demo, as vm0 is.
func ServerName(cluster, vm string) string {
	return cluster + "-" + strings.ReplaceAll(vm, "-", "_")
}

// Make returns the OpenStack requests for running a plan's VMs. c is the plan's cluster file. The error names a part
// of the plan that no flavor can express. Make is pure: it contacts no host and no cloud.
func Make(p *plan.Plan, c *spec.Cluster) (*Request, error) {
	r := &Request{Cluster: p.Cluster, Image: map[string]string{}}
	if r.Cluster == "" {
		r.Cluster = "cluster"
	}
	seen := map[string]string{} // properties of a flavor → its name
	for i := range p.VMs {
		vm := &p.VMs[i]
		f, err := flavorOf(vm, c)
		if err != nil {
			return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
		}
		if p.Region != nil && p.Region.Device != "devdax" {
			f.Specs[RegionSpec] = spec.Size(p.Region.SizeBytes).String()
		}
		key := fmt.Sprint(f.VCPUs, f.RAMMiB, f.Specs)
		name, ok := seen[key]
		if !ok {
			name = flavorName(r.Flavors, f)
			f.Name, seen[key] = name, name
			r.Flavors = append(r.Flavors, f)
		}
		s := Server{Name: ServerName(r.Cluster, vm.Name), Flavor: name}
		for k, d := range vm.Devices {
			if byAlias(d, k, vm, c) {
				continue // the flavor requests it
			}
			s.Ports = append(s.Ports, Port{Name: fmt.Sprintf("%s-vf%d", s.Name, k), VNIC: "direct", PF: d.PF})
		}
		r.Servers = append(r.Servers, s)
		imageOf(r.Image, vm)
	}
	r.Aliases = aliases(p, c)
	r.Group = groupOf(r.Cluster, p, c)
	if len(r.Image) == 0 {
		r.Image = nil
	}
	r.Lost = lost(p, c)
	return r, nil
}

// flavorName returns a name for a flavor from its properties, with a number if that name is used.
func flavorName(have []Flavor, f Flavor) string {
	base := fmt.Sprintf("nm.%d.%dM", f.VCPUs, f.RAMMiB)
	name := base
	for n := 2; slices.ContainsFunc(have, func(h Flavor) bool { return h.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return name
}

// groupOf returns the group that keeps the VMs of a host on one host, or over several hosts apart.
func groupOf(cluster string, p *plan.Plan, c *spec.Cluster) *Group {
	hosts := map[string]int{}
	for i := range p.VMs {
		hosts[p.VMs[i].Host]++
	}
	switch {
	case len(p.VMs) < 2:
		return nil
	case len(hosts) == 1:
		return &Group{Name: cluster, Policy: "affinity"}
	case c.Placement.HostPolicy == "pack":
		return &Group{Name: cluster, Policy: "soft-affinity"}
	}
	return &Group{Name: cluster, Policy: "soft-anti-affinity"}
}

// imageOf adds the properties that an image needs for a VM, because Nova reads them only from an image.
func imageOf(image map[string]string, vm *plan.VM) {
	low := lower.Of(vm)
	if len(vm.Devices) > 0 || low.IOMMU {
		image["hw_machine_type"] = "q35" // for devices behind PCI Express ports
	}
	if low.PhysBits != 0 {
		image["hw_maxphysaddr_mode"] = "emulate"
		image["hw_maxphysaddr_bits"] = fmt.Sprint(low.PhysBits)
	}
}
