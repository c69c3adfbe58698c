package spec

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"sort"
)

// Validate checks a Cluster that was not made by Parse. A zero field means its default and is valid. The error is a
// *Problems without places.
func Validate(c *Cluster) error {
	var problems Problems
	walk(reflect.ValueOf(c).Elem(), Schema(), nil, "", &problems)
	if len(problems.List) == 0 {
		for _, p := range conflicts(c) {
			problems.add(p)
		}
	}
	if len(problems.List) > 0 {
		return &problems
	}
	return nil
}

// walk checks v and its contents against the rules of the fields.
func walk(v reflect.Value, t *Type, f *Field, key string, problems *Problems) {
	if t.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch t.Kind {
	case Object:
		for i := range t.Fields {
			f := &t.Fields[i]
			walk(v.Field(f.index), f.Type, f, join(key, f.Key), problems)
		}
	case List:
		if v.Len() > maxItems {
			problems.add(Problem{Key: key, Message: fmt.Sprintf("has %d items, more than %d", v.Len(), maxItems)})
			return
		}
		for i := 0; i < v.Len(); i++ {
			walk(v.Index(i), t.Elem, f, fmt.Sprintf("%s[%d]", key, i), problems)
		}
	case Map:
		names := v.MapKeys()
		sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
		for _, name := range names {
			if message := f.checkMapKey(name.String()); message != "" {
				problems.add(Problem{Key: key, Message: message})
				continue
			}
			walk(v.MapIndex(name), t.Elem, f, join(key, name.String()), problems)
		}
	default:
		if v.IsZero() && !t.Pointer && !f.Required {
			return
		}
		if message := f.check(t, v); message != "" {
			problems.add(Problem{Key: key, Message: message})
		}
	}
}

// conflicts returns the problems between the values of c, each of which is valid individually. c keeps its zero
// fields.
func conflicts(c *Cluster) []Problem {
	c = c.Clone()
	Defaults(c)
	var problems []Problem
	add := func(key, format string, args ...any) {
		problems = append(problems, Problem{Key: key, Message: fmt.Sprintf(format, args...)})
	}
	if n := VMCount(c); n > MaxVMs {
		add("vms", "%d VMs are more than a cluster can have (%d)", n, MaxVMs)
		return problems
	}
	nameConflicts(c, add)
	rootConflicts(c, add)
	shareConflicts(c, add)
	networkConflicts(c, add)
	for i, g := range c.VMs {
		for j, d := range g.Devices {
			deviceConflicts(fmt.Sprintf("vms[%d].devices[%d]", i, j), d, add)
		}
	}
	return problems
}

type adder func(key, format string, args ...any)

// nameConflicts finds two VMs with the same name, also those such as the 10th of vm and the first of vm1.
func nameConflicts(c *Cluster, add adder) {
	owner := map[string]int{}
groups:
	for i, g := range c.VMs {
		if len(g.Names) > 0 && len(g.Names) != g.Count {
			add(fmt.Sprintf("vms[%d].names", i), "%d names for %d VMs: write one for each, or leave names out", len(g.Names), g.Count)
			continue
		}
		for n := 0; n < g.Count; n++ {
			name := g.VMName(n)
			switch other, ok := owner[name]; {
			case name == "":
				add(fmt.Sprintf("vms[%d].names[%d]", i, n), "is empty: write the host name of a VM")
			case ok && len(g.Names) > 0:
				add(fmt.Sprintf("vms[%d].names[%d]", i, n), "%s is the name of a VM of vms[%d] already", name, other)
			case ok && other != i:
				add(fmt.Sprintf("vms[%d].name", i), "group %s has a VM %s, and so has group %s (vms[%d]): give one of them another name",
					g.Name, name, c.VMs[other].Name, other)
				continue groups
			}
			owner[name] = i
		}
	}
}

// rootConflicts finds modules without their kernel, and settings that a VM with its backend's own disk cannot have.
func rootConflicts(c *Cluster, add adder) {
	if c.KernelModules != "" && c.Kernel == "" {
		add("kernelModules", "names the modules of a kernel that is not named: write kernel, too")
	}
	if c.Root != RootBackend {
		return
	}
	const why = "is not used with root: backend, whose disk has a kernel of its own"
	if c.Kernel != "" {
		add("kernel", why)
	}
	if c.KernelModules != "" {
		add("kernelModules", why)
	}
	if len(c.KernelArgs) > 0 {
		add("kernelArgs", why)
	}
}

func shareConflicts(c *Cluster, add adder) {
	targets := map[string]int{}
	for i, s := range c.Shares {
		at := s.Target
		if at == "" {
			at = s.Path
			if filepath.IsAbs(at) {
				if message := reservedTarget(at); message != "" {
					add(fmt.Sprintf("shares[%d].path", i), "%s", message)
					continue
				}
			}
		}
		at = filepath.Clean(at)
		if other, ok := targets[at]; ok {
			add(fmt.Sprintf("shares[%d]", i), "%s is already where %s is shared", clip(at), clip(c.Shares[other].Path))
			continue
		}
		targets[at] = i
	}
}

// uplinkSubnet is the network of QEMU's user network in every guest.
var uplinkSubnet = netip.MustParsePrefix("10.0.2.0/24")

func networkConflicts(c *Cluster, add adder) {
	n := c.Network
	if n.Bridge != "" && n.Type != "bridge" {
		add("network.bridge", "is used only with type: bridge")
	}
	if n.Type == "none" {
		return
	}
	subnet, err := netip.ParsePrefix(n.Subnet)
	if err != nil {
		return // the default is valid, and any other value was checked
	}
	// The first address is the subnet's own, the last one its broadcast address.
	if room := 1<<(32-subnet.Bits()) - 2; VMCount(c) > room {
		add("network.subnet", "%s has %d addresses, too few for %d VMs: write a shorter prefix length", n.Subnet, room, VMCount(c))
	}
	if n.Uplink != "none" && subnet.Overlaps(uplinkSubnet) {
		add("network.subnet", "%s overlaps %s, the network of the guests' uplink: choose another, or uplink: none", n.Subnet, uplinkSubnet)
	}
	if device, err := netip.ParsePrefix(n.DeviceSubnet); err == nil && hasDevices(c) && subnet.Overlaps(device) {
		add("network.deviceSubnet", "%s overlaps %s, the VMs' network: choose another", n.DeviceSubnet, n.Subnet)
	}
}

func hasDevices(c *Cluster) bool {
	for _, g := range c.VMs {
		if len(g.Devices) > 0 {
			return true
		}
	}
	return false
}

// deviceConflicts finds keys of a device that contradict each other. The number of VMs with an address is not a
// conflict, because each of several hosts may have a function there.
func deviceConflicts(key string, d Device, add adder) {
	switch d.Type {
	case "pci":
		if d.Address == "" {
			add(key, "type: pci needs an address, such as 0000:41:00.0")
		}
		if d.PF != "" || d.Class != "" {
			add(key, "pf and class choose a card's virtual functions: use them with type: vf")
		}
		if d.Address != "" && d.Count > 1 {
			add(key, "%s is one function and cannot be in a VM %d times: use count: 1", d.Address, d.Count)
		}
	default:
		if d.Address != "" {
			add(key, "address chooses one PCI function: use it with type: pci")
		}
		if d.Dynamic {
			add(key, "dynamic takes a function like the one at address: use it with type: pci")
		}
	}
}
