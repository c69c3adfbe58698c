// Package topology describes a host: its NUMA nodes and their distances, packages, dies, last-level caches, cores,
// threads, memory and huge-page pools, PCI devices and their locality, and which of these this job may use. It reads
// Linux's sysfs below a root directory, so that a captured tree can represent any machine, and hwloc's XML.
package topology

import (
	"fmt"
	"sort"

	"nearmetal/internal/words"
)

// Limits of the input that a reader accepts. They are far above any existing machine, and bound the memory that a
// hostile tree or file can cost.
const (
	MaxCPUs    = 16384
	MaxNodes   = 1024
	MaxDevices = 16384
)

// Host is one machine. Slices are sorted by ID (or address). IDs are the kernel's and may have gaps; indices are dense.
type Host struct {
	Name   string `json:"name"`
	Arch   string `json:"arch,omitempty"`   // as uname -m prints it, if known
	Vendor string `json:"vendor,omitempty"` // GenuineIntel, AuthenticAMD, …
	Model  string `json:"model,omitempty"`  // CPU model, in its maker's words
	// PhysBits is the width of the CPU's physical addresses in bits; 0: unknown.
	PhysBits int `json:"physBits,omitempty"`
	// MHz is the CPUs' nominal clock rate if that is known to be the unit of reservations (ESXi); 0: unknown.
	MHz     int      `json:"mhz,omitempty"`
	CPUs    []CPU    `json:"cpus"`
	Nodes   []Node   `json:"nodes"`
	Caches  []Cache  `json:"caches,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Limits  Limits   `json:"limits"`
	// Kinds are the kinds of cores of a hybrid machine, fastest first; empty: all cores are alike.
	Kinds []string `json:"kinds,omitempty"`
	// HugePageBytes is the default size of huge pages, for programs that request none; 0: unknown.
	HugePageBytes uint64 `json:"hugePageBytes,omitempty"`
	// System describes the system that runs the host, and its settings, one per line, if it is not this system.
	System []string `json:"system,omitempty"`
	// Repairs lists what was wrong or missing in the source and how it was repaired, one line for each kind of fault.
	Repairs  []string  `json:"repairs,omitempty"`
	repaired []repairs // not yet in Repairs
}

// CPU is one hardware thread.
type CPU struct {
	ID      int `json:"id"`
	Node    int `json:"node"`    // ID of its NUMA node; -1: on none
	Package int `json:"package"` // socket, numbered from 0 host-wide
	Die     int `json:"die"`     // numbered from 0 host-wide
	L3      int `json:"l3"`      // group of CPUs that share a last-level cache of level 3 or above and a node, numbered from 0 host-wide; -1: none
	Core    int `json:"core"`    // numbered from 0 host-wide
	// Kind is the index of its core's kind in Host.Kinds.
	Kind int `json:"kind,omitempty"`
	// Online is set for CPUs that run; a CPU that is not online has Core, Die and Package -1.
	Online bool `json:"online"`
	// Isolated is set for CPUs that are kept from the scheduler (isolcpus).
	Isolated bool `json:"isolated,omitempty"`
	// Allowed is set if this job's cgroup and affinity include the CPU.
	Allowed bool `json:"allowed"`
}

// Usable reports whether a job may run threads on the CPU.
func (c *CPU) Usable() bool { return c.Online && c.Allowed }

// Node is a NUMA node. A node may have no CPUs (HBM, CXL memory), or no memory.
type Node struct {
	ID          int    `json:"id"`
	CPUs        []int  `json:"cpus,omitempty"` // IDs of the online CPUs
	MemoryBytes uint64 `json:"memoryBytes"`
	// AvailableBytes is the available memory in ordinary pages: free, or file cache that can be dropped. Huge-page
	// pools are not included.
	AvailableBytes uint64 `json:"availableBytes"`
	// Pools are the huge-page pools, largest page first.
	Pools []Pool `json:"pools,omitempty"`
	// Distances are the distances to the host's nodes in the order of Host.Nodes (ACPI SLIT: 10 is local).
	Distances []int `json:"distances"`
	// ReadMBps and ReadNs are the firmware's bandwidth (MB/s) and latency (ns) from the nearest CPUs (HMAT); 0:
	// unknown.
	ReadMBps int `json:"readMBps,omitempty"`
	ReadNs   int `json:"readNs,omitempty"`
	// GPU is the PCI address of the GPU whose memory the node is (GH200, POWER9), which is not ordinary memory. Empty:
	// none.
	GPU string `json:"gpu,omitempty"`
	// Allowed is set if this job's cgroup allows it to allocate memory on the node.
	Allowed bool `json:"allowed"`
}

// Usable reports whether a VM's memory may be on the node.
func (n *Node) Usable() bool { return n.Allowed && n.GPU == "" }

// Pool is one size of huge pages on a node.
type Pool struct {
	PageBytes uint64 `json:"pageBytes"`
	Total     int    `json:"total"` // pages
	Free      int    `json:"free"`  // pages
}

// Cache is one cache and the online CPUs that share it.
type Cache struct {
	Level     int    `json:"level"`
	Type      string `json:"type"` // Data, Instruction or Unified
	SizeBytes uint64 `json:"sizeBytes"`
	CPUs      []int  `json:"cpus"`
}

// Device is one PCI function.
type Device struct {
	Address  string   `json:"address"`           // 0000:41:00.0
	Class    int      `json:"class"`             // 24 bits, as in config space
	VendorID int      `json:"vendorID"`          // 16 bits
	DeviceID int      `json:"deviceID"`          // 16 bits
	Driver   string   `json:"driver,omitempty"`  // currently bound driver
	Node     int      `json:"node"`              // ID of its NUMA node; -1: unknown
	Root     string   `json:"root,omitempty"`    // root complex: pci0000:40
	Bridges  []string `json:"bridges,omitempty"` // bridges from the root complex down to the function
	// Group is the IOMMU group; -1: none (no IOMMU).
	Group int `json:"group"`
	// PF is the physical function's address if this is a virtual function.
	PF string `json:"pf,omitempty"`
	// VFs are the addresses of this function's virtual functions, in their order.
	VFs      []string `json:"vfs,omitempty"`
	TotalVFs int      `json:"totalVFs,omitempty"` // supported by the card
	Net      []string `json:"net,omitempty"`      // names of network interfaces
	RDMA     []string `json:"rdma,omitempty"`     // names of RDMA devices
	// BARs are the sizes in bytes of the function's memory windows, for MMIO space.
	BARs []uint64 `json:"bars,omitempty"`
}

// IsVF reports whether the function is an SR-IOV virtual function.
func (d *Device) IsVF() bool { return d.PF != "" }

// Limits are the limits of a job's cgroup other than CPUs and nodes.
type Limits struct {
	// From describes the limits that were found, for people: "cgroup v2 /job_7: CPUs 0-7".
	From []string `json:"from,omitempty"`
	// MemoryBytes is how many more bytes of memory the cgroup may allocate; 0: no limit.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// CPUQuota is the CPU time in CPUs (2.5 is two and a half CPUs); 0: no limit.
	CPUQuota float64 `json:"cpuQuota,omitempty"`
}

// DefaultHugePage returns the default size of huge pages in bytes, for programs that request none. If the source does
// not state it, it returns Linux's own default on x86-64 and most of Arm.
func (h *Host) DefaultHugePage() uint64 {
	if h.HugePageBytes > 0 {
		return h.HugePageBytes
	}
	return 2 << 20
}

// NodeIndex returns the index in h.Nodes of the node with an ID, or -1.
func (h *Host) NodeIndex(id int) int {
	i := sort.Search(len(h.Nodes), func(i int) bool { return h.Nodes[i].ID >= id })
	if i < len(h.Nodes) && h.Nodes[i].ID == id {
		return i
	}
	return -1
}

// CPU returns the CPU with an ID, or nil.
func (h *Host) CPU(id int) *CPU {
	i := sort.Search(len(h.CPUs), func(i int) bool { return h.CPUs[i].ID >= id })
	if i < len(h.CPUs) && h.CPUs[i].ID == id {
		return &h.CPUs[i]
	}
	return nil
}

// Device returns the PCI function with an address, or nil.
func (h *Host) Device(address string) *Device {
	i := sort.Search(len(h.Devices), func(i int) bool { return h.Devices[i].Address >= address })
	if i < len(h.Devices) && h.Devices[i].Address == address {
		return &h.Devices[i]
	}
	return nil
}

// Distance returns the distance between two nodes by their IDs: 10 is local. Unknown nodes count as remote (20).
func (h *Host) Distance(from, to int) int {
	i, j := h.NodeIndex(from), h.NodeIndex(to)
	if i < 0 || j < 0 || j >= len(h.Nodes[i].Distances) {
		if from == to {
			return 10
		}
		return 20
	}
	return h.Nodes[i].Distances[j]
}

// Counts returns how many packages, cores and CPUs are online.
func (h *Host) Counts() (packages, cores, cpus int) {
	p, c := map[int]bool{}, map[int]bool{}
	for i := range h.CPUs {
		if h.CPUs[i].Online {
			p[h.CPUs[i].Package], c[h.CPUs[i].Core] = true, true
			cpus++
		}
	}
	return len(p), len(c), cpus
}

// repairs are the IDs of the CPUs or nodes with one fault, which make one line of Host.Repairs.
type repairs struct {
	thing, fault string
	ids          map[int]bool
}

// repair records a fault of a CPU or node that was repaired.
func (h *Host) repair(thing string, id int, fault string) {
	for i := range h.repaired {
		if r := &h.repaired[i]; r.thing == thing && r.fault == fault {
			r.ids[id] = true
			return
		}
	}
	h.repaired = append(h.repaired, repairs{thing, fault, map[int]bool{id: true}})
}

// note records a repair that concerns one object only.
func (h *Host) note(format string, a ...any) {
	const most = 100 // a hostile tree must not fill memory with notes
	if len(h.Repairs) < most {
		h.Repairs = append(h.Repairs, fmt.Sprintf(format, a...))
	}
}

// writeRepairs adds a line to Repairs for each kind of fault.
func (h *Host) writeRepairs() {
	for _, r := range h.repaired {
		ids := make([]int, 0, len(r.ids))
		for id := range r.ids {
			ids = append(ids, id)
		}
		sort.Ints(ids)
		h.note("%s %s: %s", words.Plural(len(ids), r.thing, r.thing+"s"), clip(FormatList(ids)), r.fault)
	}
	h.repaired = nil
}
