package vsphere

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// hostProperties are the properties that are read of a HostSystem.
var hostProperties = []string{"name", "parent", "hardware", "config.product", "config.pciPassthruInfo", "config.network.pnic",
	"config.powerSystemInfo", "config.sharedPassthruGpuTypes", "config.hyperThread", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.quickStats"}

// bareProperties are those that plans need of hosts whose devices no VM uses: the functions and their names are most
// of a host's data.
var bareProperties = []string{"name", "parent", "hardware.cpuInfo", "hardware.cpuPkg", "hardware.memorySize", "hardware.numaInfo", "config.product",
	"config.hyperThread", "config.sharedPassthruGpuTypes", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.quickStats"}

// found is an ESXi host as it was read, live or from a capture.
type found struct {
	host   mo.HostSystem
	target types.ConfigTarget // EnvironmentBrowser.QueryConfigTarget
}

// Distances. ESXi does not report the firmware's: only near and far are known.
const (
	near = 10
	far  = 20
)

// topology converts the host for plans. Data that ESXi does not report is omitted, or noted in Repairs.
func (f *found) topology() (*topology.Host, error) {
	hw := f.host.Hardware
	if hw == nil {
		return nil, errors.New("vCenter reports nothing about its hardware: is it connected?")
	}
	h := &topology.Host{Name: hostName(f.host.Name), Arch: "x86_64", System: f.system()}
	if err := f.cpus(h); err != nil {
		return nil, err
	}
	if err := f.memory(h); err != nil {
		return nil, err
	}
	if err := f.devices(h); err != nil {
		return nil, err
	}
	return h, nil
}

// hostName converts a host's name in vCenter into a name for a plan.
func hostName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r)) {
			return r
		}
		return '-'
	}, s)
	s = s[:min(len(s), 253)]
	if strings.Trim(s, ".") == "" {
		return "esxi"
	}
	return s
}

// system describes the host's software and settings, one line each.
func (f *found) system() []string {
	var list []string
	c := f.host.Config
	if c != nil && c.Product.FullName != "" {
		list = append(list, text.OneLine(c.Product.FullName))
	}
	if c != nil && c.PowerSystemInfo != nil {
		p := c.PowerSystemInfo.CurrentPolicy
		list = append(list, text.OneLine("power policy: "+powerPolicy(p)))
	}
	if c != nil && c.HyperThread != nil && c.HyperThread.Available && !c.HyperThread.Active {
		list = append(list, "hyperthreading: off")
	}
	if f.host.Runtime.InMaintenanceMode {
		list = append(list, esx.Maintenance)
	}
	if s := f.host.Runtime.ConnectionState; s != "" && s != types.HostSystemConnectionStateConnected {
		list = append(list, text.OneLine("vCenter has no connection to it: "+string(s)))
	}
	return list
}

// powerPolicies maps the short names of ESXi's policies to their full names.
var powerPolicies = map[string]string{"static": "High Performance", "dynamic": "Balanced", "low": "Low Power", "custom": "Custom"}

func powerPolicy(p types.HostPowerPolicy) string {
	if name := powerPolicies[p.ShortName]; name != "" {
		return name
	}
	return p.ShortName + " " + p.Name
}

// cpus fills in packages, cores and threads. ESXi numbers the threads of a core one after the other, and the threads
// of a package are in HostCpuPackage.threadId; it does not report dies and last-level caches.
func (f *found) cpus(h *topology.Host) error {
	hw := f.host.Hardware
	threads, cores := int(hw.CpuInfo.NumCpuThreads), int(hw.CpuInfo.NumCpuCores)
	if cores < 1 || threads < cores || threads%cores != 0 || threads > topology.MaxCPUs {
		return fmt.Errorf("%d cores with %d threads are not a machine", cores, threads)
	}
	h.MHz = int(min(max(hw.CpuInfo.Hz, 0)/1e6, 1e6))
	each := threads / cores
	node := map[int]int{}
	for _, n := range numaNodes(hw) {
		for _, id := range n.CpuID {
			if _, twice := node[int(id)]; twice {
				return fmt.Errorf("CPU %d is in two NUMA nodes", id)
			}
			node[int(id)] = int(n.TypeId)
		}
	}
	core := map[int]int{}
	for p, pkg := range hw.CpuPkg {
		if h.Model == "" {
			h.Model, h.Vendor = text.OneLine(pkg.Description), vendor(pkg.Vendor)
		}
		ids := slices.Clone(pkg.ThreadId)
		slices.Sort(ids)
		for _, id16 := range ids {
			id := int(id16)
			if id < 0 || id >= threads || h.CPU(id) != nil || len(h.CPUs) >= threads {
				return fmt.Errorf("CPU %d of package %d: there are %d", id, p, threads)
			}
			n, ok := node[id]
			if !ok {
				return fmt.Errorf("CPU %d is in no NUMA node", id)
			}
			c, seen := core[id/each]
			if !seen {
				c = len(core)
				core[id/each] = c
			}
			h.CPUs = append(h.CPUs, topology.CPU{ID: id, Node: n, Package: p, Die: p, L3: -1, Core: c, Online: true, Allowed: true})
			sort.Slice(h.CPUs, func(i, j int) bool { return h.CPUs[i].ID < h.CPUs[j].ID })
		}
	}
	if len(h.CPUs) != threads {
		return fmt.Errorf("its packages have %d of %d CPUs", len(h.CPUs), threads)
	}
	return nil
}

// numaNodes returns a host's nodes, or a single one with everything if ESXi reports none.
func numaNodes(hw *types.HostHardwareInfo) []types.HostNumaNode {
	if hw.NumaInfo != nil && len(hw.NumaInfo.NumaNode) > 0 {
		return hw.NumaInfo.NumaNode
	}
	n := types.HostNumaNode{MemorySize: hw.MemorySize, MemoryRangeLength: hw.MemorySize}
	for _, p := range hw.CpuPkg {
		n.CpuID = append(n.CpuID, p.ThreadId...)
	}
	for _, d := range hw.PciDevice {
		n.PciId = append(n.PciId, d.Id)
	}
	return []types.HostNumaNode{n}
}

// vendor returns Linux's word for the CPU's vendor.
func vendor(v string) string {
	switch strings.ToLower(v) {
	case "intel":
		return "GenuineIntel"
	case "amd":
		return "AuthenticAMD"
	}
	return text.OneLine(v)
}

// memory fills in the nodes. Memory in use is known only for the whole host, and is divided among its nodes by their
// sizes.
func (f *found) memory(h *topology.Host) error {
	hw := f.host.Hardware
	list := numaNodes(hw)
	if hw.MemorySize < 0 || len(list) > topology.MaxNodes {
		return fmt.Errorf("%d bytes of memory in %d nodes", hw.MemorySize, len(list))
	}
	used := min(uint64(max(f.host.Summary.QuickStats.OverallMemoryUsage, 0))<<20, uint64(hw.MemorySize))
	var sum uint64
	seen := map[int]bool{}
	for _, n := range list {
		size := n.MemorySize // since ESXi 8.0 a node may have several ranges
		if size <= 0 {
			size = n.MemoryRangeLength
		}
		if size < 0 || uint64(size) > uint64(hw.MemorySize) {
			return fmt.Errorf("NUMA node %d has %d bytes of %d", n.TypeId, size, hw.MemorySize)
		}
		if seen[int(n.TypeId)] {
			return fmt.Errorf("two NUMA nodes have number %d", n.TypeId)
		}
		seen[int(n.TypeId)] = true
		node := topology.Node{ID: int(n.TypeId), MemoryBytes: uint64(size), Allowed: true}
		for _, id := range n.CpuID {
			if h.CPU(int(id)) == nil {
				return fmt.Errorf("NUMA node %d has CPU %d, which there is not", n.TypeId, id)
			}
			node.CPUs = append(node.CPUs, int(id))
		}
		slices.Sort(node.CPUs)
		sum += node.MemoryBytes
		h.Nodes = append(h.Nodes, node)
	}
	sort.Slice(h.Nodes, func(i, j int) bool { return h.Nodes[i].ID < h.Nodes[j].ID })
	for i := range h.Nodes {
		n := &h.Nodes[i]
		free := n.MemoryBytes
		if sum > 0 {
			free -= min(free, uint64(float64(used)*float64(n.MemoryBytes)/float64(sum)))
		}
		n.AvailableBytes = free
		for j := range h.Nodes {
			d := far
			if i == j {
				d = near
			}
			n.Distances = append(n.Distances, d)
		}
	}
	if len(h.Nodes) > 1 {
		h.Repairs = append(h.Repairs, "ESXi says no distances between NUMA nodes: 10 and 20 stand for near and far")
	}
	if hw.NumaInfo == nil || len(hw.NumaInfo.NumaNode) == 0 {
		h.Repairs = append(h.Repairs, "ESXi says no NUMA nodes: one stands for all")
	}
	return nil
}
