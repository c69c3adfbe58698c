package vhpc

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/spec"
)

// planned are the keys that a plan has, ignored those that the toolkit reads and does nothing with.
var (
	planned = words("cpu memory device pf latency cpu_reservation memory_reservation cores_per_socket mmio_size")
	ignored = words("instant adapter_number svs_name")
)

// Spec makes a cluster file of a file's VMs, for nearmetal plan --on vsphere. The notes say what is not in it, a line each: no
// note has a value of a key, which may be a password.
func (f *File) Spec() (c *spec.Cluster, notes []string, err error) {
	if len(f.VMs) == 0 {
		return nil, nil, fmt.Errorf("there are no VMs in it: a section _VMS_")
	}
	c = &spec.Cluster{Version: spec.Version, Backend: "vsphere", Root: spec.RootBackend}
	zero := spec.Size(0)
	c.Region.Size = &zero
	left := map[string][]int{}
	high, normal := 0, 0
	var last string
	for _, v := range f.VMs {
		g, err := group(v)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: VM %.60q: %w", v.Line, v.Name, err)
		}
		if strings.EqualFold(v.Keys["latency"], "high") {
			high++
		} else {
			normal++
		}
		for k := range v.Keys {
			if !planned[k] {
				left[k] = append(left[k], v.Line)
			}
		}
		sign := fmt.Sprintf("%s %d %d %v", g.Name, g.VCPUs, g.Memory, g.Devices)
		if n := len(c.VMs); n > 0 && sign == last {
			c.VMs[n-1].Count++
			continue
		}
		last = sign
		for i := range c.VMs {
			if c.VMs[i].Name == g.Name {
				g.Name = fmt.Sprintf("%s-%c", g.Name, 'a'+len(c.VMs)%26)
			}
		}
		c.VMs = append(c.VMs, g)
	}
	if high == 0 {
		c.Placement.Pin = "never"
	} else if normal > 0 {
		notes = append(notes, fmt.Sprintf("latency: %d VMs have high and %d have not: in the plan all VMs have cores of their own", high, normal))
	}
	i := 0
	for _, g := range c.VMs {
		for n := 0; n < g.Count; n++ {
			if name := fmt.Sprintf("%s%d", g.Name, n); name != f.VMs[i].Name {
				notes = append(notes, fmt.Sprintf("VM %s is called %s", clip(f.VMs[i].Name), name))
			}
			i++
		}
		if g.VCPUs == 0 {
			notes = append(notes, fmt.Sprintf("VMs %s: cpu is the template's, and not known here: write vcpus", g.Name))
		}
		if g.Memory == 0 {
			notes = append(notes, fmt.Sprintf("VMs %s: memory is the template's, and not known here: write memory", g.Name))
		}
	}
	notes = append(notes, leftOut(left)...)
	for n, s := range f.Switches {
		text := fmt.Sprintf("%s %s: switches are not made by a plan", s.Kind, clip(s.Name))
		if n > 0 && f.Switches[n-1].Kind == s.Kind {
			text += "; the toolkit itself reads the first row only"
		}
		notes = append(notes, text)
	}
	if err := spec.Validate(c); err != nil {
		return nil, nil, err
	}
	spec.Defaults(c)
	return c, notes, nil
}

// leftOut says which keys are not in the cluster file.
func leftOut(left map[string][]int) []string {
	var keys []string
	for k := range left {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var notes []string
	for _, k := range keys {
		why := "not part of a plan"
		switch {
		case ignored[k]:
			why = "the toolkit itself ignores it"
		case k == "host":
			why = "name the hosts' captures to nearmetal plan --host"
		case k == "vgpu" || k == "pvrdma_port_group" || k == "dvs_name":
			why = "nearmetal does not know such devices"
		case k == "guest_password":
			why = "a password in a file that others can read: change it"
		}
		notes = append(notes, fmt.Sprintf("%s (line %d): %s", k, left[k][0], why))
	}
	return notes
}

// group is a VM as a group of one.
func group(v VM) (spec.Group, error) {
	g := spec.Group{Name: groupName(v.Name), Count: 1}
	number := func(key string, most int) (int, error) {
		text := v.Keys[key]
		if text == "" {
			return 0, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%s is no number from 1 to %d", key, most)
		}
		return n, nil
	}
	var err error
	if g.VCPUs, err = number("cpu", 4096); err != nil {
		return g, err
	}
	gb, err := number("memory", 65536)
	if err != nil {
		return g, err
	}
	g.Memory = spec.Size(gb) << 30
	for _, a := range listOf(v.Keys["device"]) {
		if !strings.Contains(a, ":") {
			return g, fmt.Errorf("device %.40q: only PCI addresses are known; dynamic DirectPath has no key in the toolkit's files", a)
		}
		g.Devices = append(g.Devices, spec.Device{Type: "pci", Address: address(a)})
	}
	if pf := v.Keys["pf"]; pf != "" {
		if strings.Contains(pf, ":") {
			pf = address(pf)
		}
		g.Devices = append(g.Devices, spec.Device{Type: "vf", PF: pf})
	}
	return g, nil
}

// address is a PCI address in our form.
func address(a string) string {
	a = strings.ToLower(a)
	if strings.Count(a, ":") == 1 {
		a = "0000:" + a
	}
	return a
}

// listOf reads a list as Python writes it, ['a', 'b'], or one word.
func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[]'\", \t", r) })
}

// groupName makes a group's name of a VM's: the number behind it is the VM's in the group.
func groupName(vm string) string {
	s := strings.TrimRight(vm, "0123456789")
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, s)
	if s = strings.Trim(s, "-"); s == "" {
		return "vm"
	}
	return s[:min(len(s), 40)]
}

// clip is a name for a line.
func clip(s string) string {
	q := strconv.QuoteToASCII(s[:min(len(s), 60)])
	return q[1 : len(q)-1]
}
