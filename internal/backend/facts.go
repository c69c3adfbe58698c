package backend

import "nearmetal/internal/plan"

// Facts describe a running VM as the host reports it. They can be stored as JSON.
type Facts struct {
	VM string `json:"vm"`
	// By is the program that runs the VM, as named in rows of verify: "QEMU".
	By string `json:"by,omitempty"`
	// Own are the CPUs that nearmetal itself may use: those of a thread that was not pinned.
	Own     []int    `json:"own"`
	VCPUs   []VCPU   `json:"vcpus"` // by index
	Threads []Thread `json:"threads"`
	// Blocks are the VM's memory: one per node, or one.
	Blocks  []Block  `json:"blocks"`
	Devices []Device `json:"devices,omitempty"`
	Region  *Mapping `json:"region,omitempty"`
	// Settings replace all the above for a backend that shows no threads and memory; each is compared with the plan.
	Settings []Setting `json:"settings,omitempty"`
	// Guest is the part of the plan that is visible to the guest; nil: all of it.
	Guest *plan.VM `json:"guest,omitempty"`
	// Ended reports that the VM's program no longer exists.
	Ended bool `json:"ended,omitempty"`
	// Unread lists the parts that could not be read, each with the reason.
	Unread map[Part]string `json:"unread,omitempty"`
}

// Setting is a setting of a VM that was read back.
type Setting struct {
	What    string `json:"what"`
	Planned string `json:"planned"`
	Found   string `json:"found"`
	OK      bool   `json:"ok"`
	Unread  bool   `json:"unread,omitempty"` // Found has the reason
}

// Part is a part of the facts that is read as a whole, or fails as a whole.
type Part string

// The parts.
const (
	PartCPUs    Part = "CPUs"
	PartThreads Part = "threads"
	PartMemory  Part = "memory"
	PartDevices Part = "devices"
	PartRegion  Part = "region"
)

// VCPU is a vCPU as QEMU reports it.
type VCPU struct {
	Index  int   `json:"index"`
	CPUs   []int `json:"cpus"` // CPUs that its thread may run on
	Socket int   `json:"socket"`
	Die    int   `json:"die"`    // number in its socket
	Core   int   `json:"core"`   // number in its die
	Thread int   `json:"thread"` // number in its core
	Node   int   `json:"node"`   // guest node, -1: none
}

// Thread is a thread of QEMU that is not a vCPU.
type Thread struct {
	Name string `json:"name"`
	CPUs []int  `json:"cpus"` // CPUs that it may run on
}

// Block is the memory of a guest node.
type Block struct {
	ID    string `json:"id"`   // mem0, …; pc.ram for a VM without nodes
	Node  int    `json:"node"` // -1: the VM's memory as a whole
	Bytes uint64 `json:"bytes"`
	// Mapping is its mapping in QEMU; nil: not found.
	Mapping *Mapping `json:"mapping,omitempty"`
}

// Mapping is a range of QEMU's address space.
type Mapping struct {
	Bytes     uint64 `json:"bytes"` // size of the range
	PageBytes uint64 `json:"pageBytes"`
	Policy    string `json:"policy"` // as in numa_maps: default, bind:0, interleave:0-1, …
	// OnNode is the number of bytes present on each host node.
	OnNode map[int]uint64 `json:"onNode"`
	// HugeBytes is the number of bytes in transparent huge pages.
	HugeBytes uint64 `json:"hugeBytes,omitempty"`
	Shared    bool   `json:"shared,omitempty"`
	// File is the device and inode of the mapped file ("0:25 1234"); FileBytes its size.
	File      string `json:"file,omitempty"`
	FileBytes uint64 `json:"fileBytes,omitempty"`
}

// Present returns how many bytes of the mapping are in memory.
func (m *Mapping) Present() uint64 {
	var sum uint64
	for _, n := range m.OnNode {
		sum += n
	}
	return sum
}

// Device is a function of the host in a VM.
type Device struct {
	Host string `json:"host"` // its address on the host: 0000:41:10.0
	Port string `json:"port"` // root port that it is in, or a bus of the machine itself
	// Node and Bus are those of the expander above it; -1: the machine's own root.
	Node int `json:"node"`
	Bus  int `json:"bus"`
}
