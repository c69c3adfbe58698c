package vhpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// taken are the keys that become a part of the cluster file, or whose effect nearmetal has for every VM. The others
// are listed in a note, with the reason.
var taken = words(`template cpu memory datacenter vm_folder host datastore resource_pool linked port_group is_dhcp ip netmask gateway domain dns
	device latency pf pvrdma_port_group vgpu secure_boot cores_per_socket mmio_size`)

// why explains the treatment of a key.
var why = map[string]string{
	"instant": ignored, "adapter_number": ignored, "svs_name": ignored,
	"cpu_shares": noShares, "memory_shares": noShares,
	"dvs_name": ofGroup, "sriov_dvs_name": ofGroup,
	"guest_hostname":         "a VM's host name is its own name",
	"guest_username":         "set GOVC_GUEST_LOGIN to USER:PASSWORD, or vsphere.user for your own ssh",
	"guest_password":         "a password in a file that others can read: change it, and set GOVC_GUEST_LOGIN",
	"script":                 "run it by nearmetal exec",
	"sequence":               inOrder,
	"barrier":                inOrder,
	"allow_guest_mtu_change": "cards with a virtual function always allow it",
}

const (
	inOrder  = "scripts run in the order in which you run them"
	ignored  = "the toolkit itself ignores it"
	noShares = "shares stay normal: CPUs and memory are reserved instead"
	ofGroup  = "the port group says its switch"
)

// maker converts a file's VMs into a cluster file.
type maker struct {
	f     *File
	c     *spec.Cluster
	notes []string
	err   error // the first
}

func (m *maker) note(format string, a ...any) { m.notes = append(m.notes, fmt.Sprintf(format, a...)) }

func (m *maker) fail(v *VM, format string, a ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("line %d: VM %.60q: %w", v.Line, v.Name, fmt.Errorf(format, a...))
	}
}

// Spec converts a file's VMs into a cluster file for nearmetal with backend vsphere. The notes list what is not in
// it, one line each. No note contains the value of a key, which may be a password.
func (f *File) Spec() (c *spec.Cluster, notes []string, err error) {
	if len(f.VMs) == 0 {
		return nil, nil, fmt.Errorf("there are no VMs in it: a section _VMS_")
	}
	zero := spec.Size(0)
	m := &maker{f: f, c: &spec.Cluster{Version: spec.Version, Backend: "vsphere", Root: spec.RootBackend}}
	m.c.Region.Size = &zero
	m.groups()
	m.reservations()
	m.inventory()
	m.devices()
	m.addresses()
	m.others()
	if m.err != nil {
		return nil, nil, m.err
	}
	m.dropBad()
	if err := spec.Validate(m.c); err != nil {
		return nil, nil, err
	}
	spec.Defaults(m.c)
	return m.c, m.notes, nil
}

// dropBad drops invalid values of the network, such as placeholders.
func (m *maker) dropBad() {
	v := &m.c.VSphere
	for _, x := range []struct {
		key  string
		drop func()
	}{{"gateway", func() { v.Gateway = "" }}, {"domain", func() { v.Domain = "" }}, {"dns", func() { v.DNS = nil }}} {
		var bad *spec.Problems
		if errors.As(spec.Validate(m.c), &bad) && slices.ContainsFunc(bad.List, func(p spec.Problem) bool { return strings.HasPrefix(p.Key, "vsphere."+x.key) }) {
			m.note("%s (line %d): it is not a value for vsphere.%s, and left out", x.key, m.f.VMs[0].Line, x.key)
			x.drop()
		}
	}
}

// groups makes groups of consecutive equal VMs.
func (m *maker) groups() {
	var last string
	used := map[string]bool{}
	for i := range m.f.VMs {
		v := &m.f.VMs[i]
		g, err := m.group(v)
		if err != nil {
			m.fail(v, "%w", err)
			return
		}
		name := vmName(v.Name, used)
		if name != v.Name {
			m.note("VM %s (line %d): its host name is %s", clip(v.Name), v.Line, name)
		}
		sign := fmt.Sprintf("%d %d %v", g.VCPUs, g.Memory, g.Devices)
		n := len(m.c.VMs)
		// A function at an address belongs to one host, and a group of several VMs would share it.
		if n > 0 && sign == last && !slices.ContainsFunc(g.Devices, func(d spec.Device) bool { return d.Type == "pci" }) {
			m.c.VMs[n-1].Names = append(m.c.VMs[n-1].Names, name)
			m.c.VMs[n-1].Count++
			continue
		}
		last = sign
		g.Names = []string{name}
		m.c.VMs = append(m.c.VMs, g)
	}
	for _, g := range m.c.VMs {
		who := g.Names[0]
		if g.Count > 1 {
			who += " to " + g.Names[g.Count-1]
		}
		if g.VCPUs == 0 {
			m.note("VMs %s: cpu is the template's, and not known here: write vcpus", who)
		}
		if g.Memory == 0 {
			m.note("VMs %s: memory is the template's, and not known here: write memory", who)
		}
	}
}

// vmName returns a VM's name as a host name that no other VM has: letters become lower case, other invalid characters
// hyphens.
func vmName(vm string, used map[string]bool) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(vm))
	if s = strings.Trim(s, "-"); s == "" || s[0] < 'a' || s == "localhost" {
		s = strings.TrimSuffix("vm-"+s, "-")
	}
	s = strings.TrimRight(s[:min(len(s), 58)], "-") // at most a hyphen and four digits follow
	name := s
	for n := 2; used[name]; n++ {
		name = fmt.Sprintf("%s-%d", s, n)
	}
	used[name] = true
	return name
}

// reservations checks those of the file against the plan's: VMs with cores of their own have all of their CPU and
// memory reserved.
func (m *maker) reservations() {
	high := 0
	for i := range m.f.VMs {
		if strings.EqualFold(m.f.VMs[i].Keys["latency"], "high") {
			high++
		}
	}
	switch all := len(m.f.VMs); {
	case high == 0:
		m.c.Placement.Pin = "never"
		for _, k := range []string{"cpu_reservation", "memory_reservation"} {
			if slices.ContainsFunc(m.f.VMs, func(v VM) bool { on, err := truth(v.Keys[k]); return on || err != nil }) {
				m.note("%s: reserved with latency: high only, or memory for VMs with devices: leave placement.pin out to have both", k)
			}
		}
	case high < all:
		m.note("latency: %d VMs have high and %d have not: in the plan all VMs have cores of their own", high, all-high)
	}
}

// inventory sets where vCenter puts the VMs.
func (m *maker) inventory() {
	v := &m.c.VSphere
	for _, x := range []struct {
		key string
		to  *string
	}{{"template", &v.Template}, {"datacenter", &v.Datacenter}, {"vm_folder", &v.Folder}, {"datastore", &v.Datastore},
		{"resource_pool", &v.Pool}, {"port_group", &v.PortGroup}} {
		*x.to = m.common(x.key)
	}
	if v.Template == "" && !m.any("template") {
		m.note("there is no template in it: write vsphere.template before you start the VMs")
	}
	v.Linked = m.truth("linked")
	for i := range m.f.VMs {
		if h := m.f.VMs[i].Keys["host"]; h != "" && !slices.Contains(v.Hosts, h) {
			v.Hosts = append(v.Hosts, h)
		}
	}
	if len(v.Hosts) == 0 {
		if c := m.common("cluster"); c != "" {
			v.Hosts = []string{c} // all of its hosts
		}
	}
	if len(v.Hosts) > 1 {
		m.note("host: the plan chooses which VM is on which of the hosts")
	}
}

// devices sets devices that are not functions of a host, and the additional needs of functions.
func (m *maker) devices() {
	v := &m.c.VSphere
	if m.any("secure_boot") {
		on := m.truth("secure_boot")
		if m.same("secure_boot") {
			v.SecureBoot = &on
		}
	}
	v.VGPU, v.PVRDMA = m.common("vgpu"), m.common("pvrdma_port_group")
	for i := range m.f.VMs {
		k := m.f.VMs[i].Keys
		if _, err := truth(k["allow_guest_mtu_change"]); err != nil {
			m.fail(&m.f.VMs[i], "allow_guest_mtu_change %w", err)
		}
		for _, g := range listOf(k["sriov_port_group"]) {
			switch {
			case v.PortGroup == "":
				v.PortGroup = g
			case g != v.PortGroup:
				m.note("sriov_port_group (line %d): virtual functions are on vsphere.portGroup", m.f.VMs[i].Line)
				return
			}
		}
	}
}

// addresses sets DHCP, or the addresses of network.subnet.
func (m *maker) addresses() {
	v := &m.c.VSphere
	v.DNS, v.Domain = listOf(m.common("dns")), m.common("domain")
	if v.DHCP = m.truth("is_dhcp") && m.same("is_dhcp"); v.DHCP {
		if m.any("gateway") || m.any("ip") || m.any("netmask") {
			m.note("ip, netmask, gateway: with is_dhcp they are DHCP's")
		}
		return
	}
	if !m.any("ip") {
		if m.any("gateway") || m.any("netmask") {
			m.note("netmask, gateway: the toolkit sets them with ip or is_dhcp only")
		}
		return
	}
	v.Gateway = m.common("gateway")
	first := &m.f.VMs[0]
	ip, err := netip.ParseAddr(first.Keys["ip"])
	mask, e := netip.ParseAddr(m.common("netmask"))
	if err != nil || e != nil || !ip.Is4() || !mask.Is4() {
		m.note("ip, netmask: no IPv4 address with a netmask of all VMs: write network.subnet")
		return
	}
	b := mask.As4()
	n := binary.BigEndian.Uint32(b[:])
	bits := 32
	for ; bits > 0 && n&1 == 0; bits-- {
		n >>= 1
	}
	if n&(n+1) != 0 || bits < 8 || bits > 28 {
		m.note("netmask: none of /8 to /28: write network.subnet")
		return
	}
	subnet := netip.PrefixFrom(ip, bits).Masked()
	m.c.Network.Subnet = subnet.String()
	at := subnet.Addr()
	for i := range m.f.VMs {
		if at = at.Next(); at.String() == v.Gateway {
			at = at.Next()
		}
		if m.f.VMs[i].Keys["ip"] != at.String() {
			m.note("ip (line %d): VM n has address n of %s", m.f.VMs[i].Line, subnet)
			return
		}
	}
}

// others notes the keys that are not in the cluster file, and the switches that another command makes.
func (m *maker) others() {
	lines := map[string]int{}
	for i := range m.f.VMs {
		for k := range m.f.VMs[i].Keys {
			if _, seen := lines[k]; !taken[k] && !seen {
				lines[k] = m.f.VMs[i].Line
			}
		}
	}
	var keys []string
	for k := range lines {
		if _, ok := why[k]; ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, u := range m.f.Unknown {
		m.note("%s (line %d): no key of the toolkit's: it is left out", clip(u.Key), u.Line)
	}
	for _, k := range keys {
		m.note("%s (line %d): %s", k, lines[k], why[k])
	}
	for i := range m.f.VMs {
		v := &m.f.VMs[i]
		if v.Keys["power"] == "off" {
			m.note("power (line %d): nearmetal up powers all VMs on", v.Line)
			break
		}
	}
	for _, s := range m.f.Switches {
		m.note("%s %s (line %d): made by nearmetal vsphere %s", s.Kind, clip(s.Name), s.Line, s.Kind)
	}
}

// any reports whether a VM has a key, same whether all VMs have the same value.
func (m *maker) any(key string) bool {
	return slices.ContainsFunc(m.f.VMs, func(v VM) bool { return v.Keys[key] != "" })
}

func (m *maker) same(key string) bool {
	return !slices.ContainsFunc(m.f.VMs, func(v VM) bool { return v.Keys[key] != m.f.VMs[0].Keys[key] })
}

// common returns the value of a key that all VMs have; "" with a note if they differ.
func (m *maker) common(key string) string {
	if !m.same(key) {
		m.note("%s: the VMs differ, and those of a cluster have the same: write a file for each kind", key)
		return ""
	}
	return m.f.VMs[0].Keys[key]
}

// truth returns a key that is true or false, false with a note if VMs differ.
func (m *maker) truth(key string) bool {
	for i := range m.f.VMs {
		if _, err := truth(m.f.VMs[i].Keys[key]); err != nil {
			m.fail(&m.f.VMs[i], "%s %w", key, err)
		}
	}
	on, _ := truth(m.common(key))
	return on
}

// truth parses a word as the toolkit does.
func truth(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "y", "yes", "t", "true", "on", "1":
		return true, nil
	case "", "n", "no", "f", "false", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("is neither true nor false")
}

// group converts a VM into a group of one.
func (m *maker) group(v *VM) (spec.Group, error) {
	g := spec.Group{Count: 1}
	if text := v.Keys["cpu"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 4096 {
			return g, fmt.Errorf("cpu is not a number from 1 to 4096")
		}
		g.VCPUs = n
	}
	if text := v.Keys["memory"]; text != "" { // GB, with a fraction
		gb, err := strconv.ParseFloat(text, 64)
		if err != nil || !(gb >= 0.125 && gb <= 65536) {
			return g, fmt.Errorf("memory is not a number of GB from 0.125 to 65536")
		}
		g.Memory = spec.Size(math.Round(gb*1024)) << 20
	}
	for _, a := range listOf(v.Keys["device"]) {
		if !pciAddress.MatchString(a) {
			m.note("device (line %d): one of them is not a PCI address, and left out: write vms.devices", v.Line)
			continue
		}
		g.Devices = append(g.Devices, spec.Device{Type: "pci", Address: address(a)})
	}
	for _, pf := range listOf(v.Keys["pf"]) {
		if strings.Contains(pf, ":") {
			pf = address(pf)
		}
		g.Devices = append(g.Devices, spec.Device{Type: "vf", PF: pf})
	}
	return g, nil
}

var pciAddress = regexp.MustCompile(`^(?:[0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]$`)

// address converts a PCI address into nearmetal's form.
func address(a string) string {
	a = strings.ToLower(a)
	if strings.Count(a, ":") == 1 {
		a = "0000:" + a
	}
	return a
}

// listOf parses a list in Python's form, ['a', 'b'], or one word.
func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[]'\", \t", r) })
}

// clip returns a name for a note, at most 60 bytes of it.
func clip(s string) string { return text.Clip(text.Clean(s), 60) }
