// Package plan turns a cluster file and the topologies of hosts into a plan: which VM gets which CPUs, memory and
// devices, and why. It is a pure function: it reads no host and starts nothing. Backends carry out a plan.
package plan

// Plan states where and how the VMs of one cluster run.
type Plan struct {
	Version int     `json:"version" yaml:"version"`
	Cluster string  `json:"cluster" yaml:"cluster"`
	VMs     []VM    `json:"vms" yaml:"vms"`
	Region  *Region `json:"region,omitempty" yaml:"region,omitempty"` // nil: no region
	// Overcommitted: a host has more vCPUs than CPUs for them, so that VMs wait for each other's CPUs.
	Overcommitted bool `json:"overcommitted,omitempty" yaml:"overcommitted,omitempty"`
	// Reserved are the CPUs kept for the hosts (placement.reserve).
	Reserved []Reserved `json:"reserved,omitempty" yaml:"reserved,omitempty"`
	Reasons  []string   `json:"reasons,omitempty" yaml:"reasons,omitempty"`
	// Warnings are what the user should know before the VMs start, one line each.
	Warnings []string `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// VM is one virtual machine of a plan. vCPU numbers are QEMU's CPU indices.
type VM struct {
	Name        string `json:"name" yaml:"name"`
	Index       int    `json:"index" yaml:"index"` // index in the cluster, from 0
	Host        string `json:"host" yaml:"host"`
	VCPUs       int    `json:"vcpus" yaml:"vcpus"`
	Sockets     int    `json:"sockets" yaml:"sockets"`
	Dies        int    `json:"dies" yaml:"dies"`       // per socket
	Cores       int    `json:"cores" yaml:"cores"`     // per die
	Threads     int    `json:"threads" yaml:"threads"` // per core
	MemoryBytes uint64 `json:"memoryBytes" yaml:"memoryBytes"`
	// Nodes are the guest's NUMA nodes; empty: one, not described to the guest.
	Nodes []Node `json:"nodes,omitempty" yaml:"nodes,omitempty"`
	// Pins holds, for each vCPU, the host CPUs its thread may run on; empty: anywhere.
	Pins [][]int `json:"pins,omitempty" yaml:"pins,omitempty"`
	// EmulatorCPUs are the host CPUs of QEMU's other threads; empty: anywhere.
	EmulatorCPUs []int    `json:"emulatorCPUs,omitempty" yaml:"emulatorCPUs,omitempty"`
	Devices      []Device `json:"devices,omitempty" yaml:"devices,omitempty"`
	// L3 lists the sets of vCPUs whose host CPUs share a last-level cache; empty: not known.
	L3 [][]int `json:"l3,omitempty" yaml:"l3,omitempty"`
	// Reasons state why the VM is placed as it is, and the rejected alternatives, one sentence each.
	Reasons []string `json:"reasons,omitempty" yaml:"reasons,omitempty"`
}

// Reserved lists the CPUs of a host that no VM gets.
type Reserved struct {
	Host string `json:"host" yaml:"host"`
	CPUs []int  `json:"cpus" yaml:"cpus"`
}

// Node is a NUMA node of a guest.
type Node struct {
	ID          int    `json:"id" yaml:"id"`
	VCPUs       []int  `json:"vcpus" yaml:"vcpus"`
	MemoryBytes uint64 `json:"memoryBytes" yaml:"memoryBytes"`
	PageBytes   uint64 `json:"pageBytes,omitempty" yaml:"pageBytes,omitempty"` // 0: ordinary pages
	// HostNodes are the host nodes its memory is bound to, interleaved over several; empty: any.
	HostNodes []int `json:"hostNodes,omitempty" yaml:"hostNodes,omitempty"`
	// Distances to the guest's nodes in the order of VM.Nodes (ACPI SLIT, 10 is local); empty: QEMU's defaults.
	Distances []int `json:"distances,omitempty" yaml:"distances,omitempty"`
}

// Device is a host device passed through to a VM.
type Device struct {
	Kind    string `json:"kind" yaml:"kind"`       // "vfio"
	Address string `json:"address" yaml:"address"` // 0000:41:10.0
	Node    int    `json:"node" yaml:"node"`       // guest node it is presented on, -1: none
	// BARBytes is the total size of its 64-bit BARs in bytes; 0: not known.
	BARBytes uint64 `json:"barBytes,omitempty" yaml:"barBytes,omitempty"`
	HostNode int    `json:"hostNode" yaml:"hostNode"`         // host node it is attached to, -1: not known
	PF       string `json:"pf,omitempty" yaml:"pf,omitempty"` // address of its physical function
	Name     string `json:"name,omitempty" yaml:"name,omitempty"`
	// Dynamic: the backend chooses any function with the same vendor and device IDs when the VM starts.
	Dynamic bool `json:"dynamic,omitempty" yaml:"dynamic,omitempty"`
	// HideROM: the guest does not see its option ROM. That of a whole network card waits for a boot server (FlexBoot, PXE)
	// at each start of a VM.
	HideROM bool `json:"hideROM,omitempty" yaml:"hideROM,omitempty"`
}

// Region is the memory shared by the VMs of one host.
type Region struct {
	SizeBytes uint64 `json:"sizeBytes" yaml:"sizeBytes"`
	Backing   string `json:"backing" yaml:"backing"`   // "shm" or "hugetlb"
	Device    string `json:"device" yaml:"device"`     // "ivshmem" or "devdax"
	HostNode  int    `json:"hostNode" yaml:"hostNode"` // node of its memory (on the first host), -1: any
	// PageBytes is the page size of its memory; 0: ordinary pages.
	PageBytes uint64 `json:"pageBytes,omitempty" yaml:"pageBytes,omitempty"`
	// Hosts are the nodes by host, if the cluster has several hosts.
	Hosts []RegionHost `json:"hosts,omitempty" yaml:"hosts,omitempty"`
}

// RegionHost is the region's node on one host.
type RegionHost struct {
	Host     string `json:"host" yaml:"host"`
	HostNode int    `json:"hostNode" yaml:"hostNode"`
}
