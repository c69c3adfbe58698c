// Package esx determines the configuration of a plan's VMs on ESXi, and the parts of the plan that ESXi does not
// guarantee. It is pure, and does not use vCenter's API. The source of a rule of ESXi is cited next to it.
//
// Sources: [RM] VMware vSphere Resource Management 8.0; [LS] Deploying Extremely Latency-Sensitive Applications in
// VMware vSphere 5.5, and later best practices of latency sensitivity; [DP] Using NVIDIA ConnectX adapter cards for
// HPC and machine learning workloads on vSphere in DirectPath I/O mode (2022); [NET] VMware vSphere Networking 8.0;
// [API] vSphere Web Services API 8.0.
package esx

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// VM is the configuration of a plan's VM. Zero fields are left at ESXi's defaults.
type VM struct {
	Name            string `json:"name"`
	Host            string `json:"host"`
	HardwareVersion int    `json:"hardwareVersion,omitempty"` // required by the settings: 20 is ESXi 8.0
	NumCPUs         int    `json:"numCPUs"`
	CoresPerSocket  int    `json:"numCoresPerSocket"`
	// CoresPerNUMANode is virtualNuma.coresPerNumaNode; 0: older settings in ExtraConfig, or none.
	CoresPerNUMANode int      `json:"coresPerNumaNode,omitempty"`
	CPUHotAdd        bool     `json:"cpuHotAddEnabled"` // always off, because it disables vNUMA
	MemoryMB         int64    `json:"memoryMB"`
	Latency          string   `json:"latencySensitivity"`           // high or normal
	CPUReservation   int64    `json:"cpuReservationMHz,omitempty"`  // MHz
	MemoryLocked     bool     `json:"memoryReservationLockedToMax"` // all memory reserved
	Firmware         string   `json:"firmware,omitempty"`           // efi, if devices or secure boot require it
	SecureBoot       *bool    `json:"efiSecureBootEnabled,omitempty"`
	Devices          []Device `json:"devices,omitempty"`
	// ExtraConfig has the advanced settings.
	ExtraConfig map[string]string `json:"extraConfig,omitempty"`
	Reasons     []string          `json:"reasons,omitempty"` // with the source of each rule
}

// Device is a device of the host in a VM.
type Device struct {
	// Kind is passthru: the whole function; sriov: a virtual function that ESXi chooses; dynamic: a whole function
	// with these IDs, which vCenter chooses; vgpu: a part of a GPU; or pvrdma: a network card with RDMA on the host's
	// own.
	Kind string `json:"kind"`
	// Of the function, or of the PF; for dynamic, of the function that the plan counts.
	Address  string `json:"address"`
	Name     string `json:"name,omitempty"`     // vgpu: the profile; pvrdma: the port group
	VendorID int    `json:"vendorId,omitempty"` // with dynamic
	DeviceID int    `json:"deviceId,omitempty"` // with dynamic
	HostNode int    `json:"hostNode"`           // -1: not known
	NUMANode *int   `json:"numaNode,omitempty"` // VirtualDevice.numaNode, since ESXi 8.0 update 1
}

// The kinds of devices that are not functions of a host.
const (
	VGPU   = "vgpu"
	PVRDMA = "pvrdma"
)

// Which returns the identity of a device within its kind.
func (d Device) Which() string {
	switch d.Kind {
	case "dynamic":
		return d.IDs()
	case VGPU, PVRDMA:
		return d.Name
	}
	return d.Address
}

// ofHost reports whether the VM has functions of its host.
func (vm *VM) ofHost() bool {
	return slices.ContainsFunc(vm.Devices, func(d Device) bool { return d.Kind != VGPU && d.Kind != PVRDMA })
}

// IDs returns the vendor and device IDs of a dynamic device in lspci's form.
func (d Device) IDs() string { return fmt.Sprintf("%04x:%04x", d.VendorID, d.DeviceID) }

// Translation is a plan as carried out by ESXi.
type Translation struct {
	VMs []VM `json:"vms"`
	// Lost lists the parts of the plan that ESXi does not guarantee, Undone those that DRS and HA would undo, one
	// sentence each.
	Lost   []string `json:"lost,omitempty"`
	Undone []string `json:"undone,omitempty"`
}

// Words in a host's description that Translate uses (topology.Host.System, Device.Driver).
const (
	Maintenance = "in maintenance mode: it takes no VMs"
	Passthru    = "passthru" // the driver of a function that can be assigned to VMs as a whole
)

// vNUMAFrom is the number of vCPUs from which ESXi by default presents NUMA nodes to a VM (numa.vcpu.min) [RM].
const vNUMAFrom = 9

// Spare returns how many of a host's cores ESXi needs if VMs have cores of their own: a twelfth, as VMware's study
// uses 44 of 48 [DP].
func Spare(cores int) int { return (cores + 11) / 12 }

// isESXi reports whether a host is an ESXi host, and not another machine on which a plan is tried.
func isESXi(h *topology.Host) bool { return slices.ContainsFunc(h.System, version.MatchString) }

// version matches an ESXi version in a host's description.
var version = regexp.MustCompile(`^VMware ESXi ([0-9]{1,2})\.([0-9]{1,2})`)

// eight reports whether a host is ESXi 8.0 or later; a host without a version is assumed to be.
func eight(h *topology.Host) bool {
	for _, s := range h.System {
		if m := version.FindStringSubmatch(s); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n >= 8
		}
	}
	return true
}

// Translate returns the configuration of the plan's VMs; file has the cluster file's settings for vSphere only. The
// error is one line: the setting that ESXi would reject, and the alternative.
func Translate(file spec.VSphere, p *plan.Plan, hosts []topology.Host) (*Translation, error) {
	if p.Region != nil {
		return nil, fmt.Errorf("ESXi has no memory that VMs share: write region: 0")
	}
	byName := map[string]*topology.Host{}
	for i := range hosts {
		byName[hosts[i].Name] = &hosts[i]
	}
	t, l := &Translation{}, &losses{}
	own := map[string]int{} // vCPUs with cores of their own, by host
	for i := range p.VMs {
		v := &p.VMs[i]
		h := byName[v.Host]
		if h == nil {
			return nil, fmt.Errorf("VM %s: the plan's host %s is not among those given", v.Name, v.Host)
		}
		if slices.Contains(h.System, Maintenance) {
			return nil, fmt.Errorf("host %s is %s", h.Name, Maintenance)
		}
		vm, err := translate(file, v, h, l)
		if err != nil {
			return nil, fmt.Errorf("VM %s: %w", v.Name, err)
		}
		if vm.Latency == "high" {
			own[v.Host] += v.VCPUs
		}
		t.VMs = append(t.VMs, *vm)
	}
	for _, h := range hosts {
		_, cores, _ := h.Counts()
		if n := own[h.Name]; n > cores-Spare(cores) {
			return nil, fmt.Errorf("host %s: %d vCPUs would have cores of their own, of %d cores: ESXi needs %d for itself (%d of %d in VMware's study of 2022): give the VMs fewer vCPUs, or write placement: {pin: never}", h.Name, n, cores, Spare(cores), cores-Spare(cores), cores)
		}
	}
	t.Lost, t.Undone = l.lines(), undone(t.VMs)
	return t, nil
}

// translate returns the configuration of one VM.
func translate(file spec.VSphere, v *plan.VM, h *topology.Host, l *losses) (*VM, error) {
	vm := &VM{Name: v.Name, Host: v.Host, NumCPUs: v.VCPUs, CoresPerSocket: v.VCPUs, MemoryMB: int64((v.MemoryBytes + 1<<20 - 1) >> 20), Latency: "normal", ExtraConfig: map[string]string{}}
	if v.MemoryBytes%(4<<20) != 0 {
		vm.MemoryMB = (vm.MemoryMB + 3) / 4 * 4 // a VM's memory is a multiple of 4 MB [API]
		vm.because("memory is rounded up to %d MB, a multiple of 4 [API]", vm.MemoryMB)
	}
	if n := v.Sockets; n > 1 && v.VCPUs%n == 0 {
		vm.CoresPerSocket = v.VCPUs / n
	}
	vm.nodes(v, h, l)
	if err := vm.placement(v, h, l); err != nil {
		return nil, err
	}
	if err := vm.devices(v, h, l); err != nil {
		return nil, err
	}
	vm.more(file, l)
	if len(vm.ExtraConfig) == 0 {
		vm.ExtraConfig = nil
	}
	return vm, nil
}

func (vm *VM) because(format string, a ...any) {
	vm.Reasons = append(vm.Reasons, fmt.Sprintf(format, a...))
}

// nodes sets the guest's NUMA nodes.
func (vm *VM) nodes(v *plan.VM, h *topology.Host, l *losses) {
	if v.Threads > 1 {
		l.add("threads", v.Name, "the guest does not see which vCPUs are threads of a core: each is a core to it [RM]")
		vm.ExtraConfig["numa.vcpu.preferHT"] = "TRUE"
		vm.because("its vCPUs are to be on both threads of cores, so they are counted by threads (numa.vcpu.preferHT) [RM]")
	}
	if v.Dies > 1 {
		l.add("dies", v.Name, "the guest sees no dies")
	}
	if len(v.L3) > 1 {
		l.add("caches", v.Name, "the guest does not see which vCPUs share a last-level cache")
	}
	k := len(v.Nodes)
	if k < 2 {
		return
	}
	each := len(v.Nodes[0].VCPUs)
	for _, n := range v.Nodes {
		switch {
		case len(n.VCPUs) == 0:
			l.add("memory", v.Name, "nodes of memory only are not shown")
			return
		case len(n.VCPUs) != each:
			l.add("unequal", v.Name, "its NUMA nodes are unequal, and ESXi makes equal ones only: it chooses them itself")
			return
		case n.MemoryBytes != v.Nodes[0].MemoryBytes:
			l.add("split", v.Name, "memory is shared out equally among its NUMA nodes")
		}
		for _, d := range n.Distances {
			if d != 10 && d != 20 {
				l.add("distances", v.Name, "the guest gets no distances between NUMA nodes: near and far is all it sees")
			}
		}
	}
	if v.Sockets <= 1 {
		vm.CoresPerSocket = each
	}
	if v.VCPUs < vNUMAFrom {
		vm.ExtraConfig["numa.vcpu.min"] = strconv.Itoa(v.VCPUs)
		vm.because("it has fewer than %d vCPUs: numa.vcpu.min has ESXi show NUMA nodes nevertheless [RM]", vNUMAFrom)
	}
	if eight(h) {
		vm.CoresPerNUMANode, vm.HardwareVersion = each, 20
		vm.because("%d NUMA nodes of %d vCPUs: coresPerNumaNode of ESXi 8.0 [API]", k, each)
	} else {
		vm.ExtraConfig["numa.vcpu.maxPerVirtualNode"] = strconv.Itoa(each)
		vm.ExtraConfig["numa.autosize.once"] = "FALSE" // otherwise the first power-on fixes the nodes [RM]
		vm.because("%d NUMA nodes of %d vCPUs: numa.vcpu.maxPerVirtualNode [RM]", k, each)
	}
	vm.because("CPU hot-add is off: it would turn the NUMA nodes off [RM]")
}

// placement sets the VM's nodes, and cores of its own.
func (vm *VM) placement(v *plan.VM, h *topology.Host, l *losses) error {
	var bound []int
	for _, n := range v.Nodes {
		for _, id := range n.HostNodes {
			if !slices.Contains(bound, id) {
				bound = append(bound, id)
			}
		}
		if n.PageBytes > 0 {
			l.add("pages", v.Name, "no page size is promised: ESXi takes large pages where it can")
		}
		if n.PageBytes >= 1<<30 {
			vm.ExtraConfig["sched.mem.lpage.enable1GPage"] = "TRUE"
			vm.MemoryLocked = true
		}
	}
	slices.Sort(bound)
	if len(bound) > 0 && len(bound) < len(h.Nodes) {
		vm.ExtraConfig["numa.nodeAffinity"] = list(bound)
		vm.because("its nodes are %s of the host: numa.nodeAffinity, which leaves it in NUMA management; an affinity of CPUs or memory would take it out [RM]", list(bound))
	}
	if len(v.Nodes) > 1 && len(bound) > 1 {
		l.add("each node", v.Name, "its memory is on its host's nodes, but which guest node is on which is ESXi's choice")
	}
	if len(v.EmulatorCPUs) > 0 {
		l.add("emulator", v.Name, "no CPUs are kept for the VM's other threads")
	}
	if len(v.Pins) == 0 {
		return nil
	}
	vm.Latency, vm.MemoryLocked = "high", true
	vm.CPUReservation = int64(v.VCPUs) * int64(h.MHz)
	vm.because("each vCPU has a core of its own: latency sensitivity high, with all of its CPU and memory reserved [LS]")
	l.add("pins", v.Name, "each vCPU has a core of its own, but which is ESXi's choice")
	if h.MHz == 0 {
		return fmt.Errorf("the host's clock rate is not known, and a vCPU's reservation is in MHz: plan for an ESXi host (nearmetal topology gather --vsphere), or write placement: {pin: never}")
	}
	return nil
}

// mmioUnknown is the window in GB for functions whose memory windows vCenter does not report: the value of VMware's
// vHPC toolkit.
const mmioUnknown = 256

// devices sets the VM's devices.
func (vm *VM) devices(v *plan.VM, h *topology.Host, l *losses) error {
	whole := 0
	var bars uint64
	unknown := false
	for _, d := range v.Devices {
		x := Device{Kind: "passthru", Address: d.Address, HostNode: d.HostNode}
		if d.PF != "" {
			x.Kind, x.Address = "sriov", d.PF
		} else {
			if on := h.Device(d.Address); isESXi(h) && (on == nil || on.Driver != Passthru) {
				return fmt.Errorf("device %s: host %s does not pass it through: an administrator switches that on (Configure, Hardware, PCI Devices in the vSphere Client)", d.Address, h.Name)
			}
			whole++
			bars += d.BARBytes
			unknown = unknown || d.BARBytes == 0
		}
		if d.Dynamic {
			on := h.Device(d.Address)
			if on == nil || on.VendorID == 0 {
				return fmt.Errorf("device %s: host %s does not say its vendor and device ids, which dynamic: true needs: leave dynamic out", d.Address, h.Name)
			}
			x.Kind, x.HostNode, x.VendorID, x.DeviceID = "dynamic", -1, on.VendorID, on.DeviceID
			vm.because("vCenter chooses a function %s when it starts: Dynamic DirectPath I/O [API]", x.IDs())
			l.add("dynamic", v.Name, "which function of the host it gets, and on which node that is, is vCenter's choice")
		} else if d.Node >= 0 && len(v.Nodes) > 1 {
			if eight(h) {
				node := d.Node
				x.NUMANode = &node
			} else {
				l.add("device node", v.Name, "the guest does not see on which of its nodes a device is: that is ESXi 8.0's")
			}
		}
		vm.Devices = append(vm.Devices, x)
	}
	if len(v.Devices) == 0 {
		return nil
	}
	vm.MemoryLocked = true
	vm.because("devices need all of its memory reserved [DP]")
	if whole > 0 {
		gb := mmioUnknown
		if !unknown {
			for gb = 1; uint64(gb)<<30 < 2*bars; gb *= 2 {
			}
		}
		vm.Firmware = "efi"
		vm.ExtraConfig["pciPassthru.use64bitMMIO"] = "TRUE"
		vm.ExtraConfig["pciPassthru.64bitMMIOSizeGB"] = strconv.Itoa(gb)
		vm.because("a window of %d GB for its devices' memory, which needs EFI [DP]", gb)
	}
	return nil
}

// pvrdmaFrom is the hardware version that has PVRDMA cards: that of ESXi 6.5 [NET].
const pvrdmaFrom = 13

// more applies the cluster file's settings for vSphere only: secure boot, and devices that are not functions of a
// host.
func (vm *VM) more(file spec.VSphere, l *losses) {
	if on := file.SecureBoot; on != nil {
		vm.SecureBoot = on
		if *on {
			vm.Firmware = "efi"
			vm.because("secure boot needs EFI, and the guest then loads signed drivers only [API]")
		}
	}
	if file.VGPU == "" && file.PVRDMA == "" {
		return
	}
	if !vm.MemoryLocked {
		vm.because("devices need all of its memory reserved [DP]")
	}
	vm.MemoryLocked = true
	if file.VGPU != "" {
		vm.Devices = append(vm.Devices, Device{Kind: VGPU, Name: file.VGPU, HostNode: -1})
		l.add(VGPU, vm.Name, "which GPU of the host its vGPU is of, and on which node that is, is ESXi's choice")
	}
	if file.PVRDMA != "" {
		vm.Devices = append(vm.Devices, Device{Kind: PVRDMA, Name: file.PVRDMA, HostNode: -1})
		vm.HardwareVersion = max(vm.HardwareVersion, pvrdmaFrom)
		l.add(PVRDMA, vm.Name, "which card of the host its PVRDMA card sends by, and on which node that is, is the switch's choice")
	}
}

// undone returns the VMs' settings that DRS and HA would undo.
func undone(vms []VM) []string {
	var list []string
	var free, bound, gpus []string
	for _, v := range vms {
		if !v.ofHost() {
			if slices.ContainsFunc(v.Devices, func(d Device) bool { return d.Kind == VGPU }) {
				gpus = append(gpus, v.Name)
			} else if v.ExtraConfig["numa.nodeAffinity"] != "" || v.Latency == "high" {
				free = append(free, v.Name)
			}
			continue
		}
		bound = append(bound, v.Name)
	}
	if len(free) > 0 {
		list = append(list, fmt.Sprintf("DRS may move %s: numa.nodeAffinity then names nodes of another host, and cores of their own have to be free there: exclude %s from DRS", names(free), words.Plural(len(free), "it", "them")))
	}
	if len(gpus) > 0 {
		list = append(list, fmt.Sprintf("HA can restart %s only on a host that offers %s vGPU profile", names(gpus), words.Plural(len(gpus), "its", "their")))
	}
	if len(bound) > 0 {
		list = append(list, fmt.Sprintf("%s cannot be moved, suspended or restarted elsewhere by HA while %s a device of this host [DP]", names(bound), words.Plural(len(bound), "it has", "they have")))
	}
	return list
}

// list formats numbers with commas for ESXi.
func list(ids []int) string {
	var s []string
	for _, id := range ids {
		s = append(s, strconv.Itoa(id))
	}
	return strings.Join(s, ",")
}

// names formats names for a sentence: the first four, and the number of the others.
func names(list []string) string {
	const most = 4
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// losses collects the losses, each once, with the VMs it applies to.
type losses struct {
	order []string
	text  map[string]string
	vms   map[string][]string
}

func (l *losses) add(key, vm, text string) {
	if l.text == nil {
		l.text, l.vms = map[string]string{}, map[string][]string{}
	}
	if _, seen := l.text[key]; !seen {
		l.order = append(l.order, key)
		l.text[key] = text
	}
	if !slices.Contains(l.vms[key], vm) {
		l.vms[key] = append(l.vms[key], vm)
	}
}

// lines returns the losses in their order.
func (l *losses) lines() []string {
	var out []string
	for _, key := range l.order {
		out = append(out, names(l.vms[key])+": "+l.text[key])
	}
	return out
}

// Text formats the VMs for people; the losses are among the plan's warnings.
func (t *Translation) Text() string {
	var b strings.Builder
	for _, v := range t.VMs {
		fmt.Fprintf(&b, "%s on %s:\n", v.Name, v.Host)
		row := func(name, format string, a ...any) { fmt.Fprintf(&b, "  %-30s %s\n", name, fmt.Sprintf(format, a...)) }
		row("numCPUs, numCoresPerSocket", "%d, %d", v.NumCPUs, v.CoresPerSocket)
		if v.CoresPerNUMANode > 0 {
			row("virtualNuma.coresPerNumaNode", "%d", v.CoresPerNUMANode)
		}
		row("memoryMB", "%d%s", v.MemoryMB, map[bool]string{true: ", all reserved"}[v.MemoryLocked])
		row("latencySensitivity", "%s", v.Latency)
		if v.CPUReservation > 0 {
			row("cpuAllocation.reservation", "%d MHz", v.CPUReservation)
		}
		if v.Firmware != "" {
			row("firmware", "%s", v.Firmware)
		}
		if v.SecureBoot != nil {
			row("efiSecureBootEnabled", "%t", *v.SecureBoot)
		}
		var keys []string
		for k := range v.ExtraConfig {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			row(k, "%s", v.ExtraConfig[k])
		}
		for _, d := range v.Devices {
			at := ""
			if d.HostNode >= 0 {
				at = fmt.Sprintf(", on node %d of the host", d.HostNode)
			}
			if d.NUMANode != nil {
				at += fmt.Sprintf(", shown on node %d", *d.NUMANode)
			}
			row("device", "%s %s%s", d.Kind, d.Which(), at)
		}
		for _, r := range v.Reasons {
			fmt.Fprintf(&b, "    %s\n", r)
		}
	}
	return b.String()
}
