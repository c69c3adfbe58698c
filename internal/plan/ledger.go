package plan

// Ledger lists the VMs of running clusters with the resources they hold. The zero value is empty.
type Ledger struct {
	Held []Held `json:"held" yaml:"held"`
}

// Held lists the resources that one running VM holds.
type Held struct {
	Host    string       `json:"host" yaml:"host"`
	Cluster string       `json:"cluster" yaml:"cluster"`
	VM      string       `json:"vm" yaml:"vm"`
	CPUs    []int        `json:"cpus,omitempty" yaml:"cpus,omitempty"` // of its pinned vCPUs; empty: not pinned
	Memory  []HeldMemory `json:"memory,omitempty" yaml:"memory,omitempty"`
	Devices []string     `json:"devices,omitempty" yaml:"devices,omitempty"` // PCI addresses
}

// HeldMemory is an amount of memory of one page size on one host node.
type HeldMemory struct {
	Node      int    `json:"node" yaml:"node"`           // host node's ID; -1: any
	PageBytes uint64 `json:"pageBytes" yaml:"pageBytes"` // 0: ordinary pages
	Bytes     uint64 `json:"bytes" yaml:"bytes"`
}

// Hold adds a plan's VMs to the ledger as running VMs.
func (l *Ledger) Hold(p *Plan) {
	for i := range p.VMs {
		v := &p.VMs[i]
		h := Held{Host: v.Host, Cluster: p.Cluster, VM: v.Name}
		for _, pin := range v.Pins {
			if len(pin) == 1 { // with more CPUs the vCPU is not pinned to one of them
				h.CPUs = append(h.CPUs, pin[0])
			}
		}
		for _, n := range v.Nodes {
			if len(n.HostNodes) == 0 {
				h.Memory = append(h.Memory, HeldMemory{-1, n.PageBytes, n.MemoryBytes})
			}
			for _, id := range n.HostNodes {
				h.Memory = append(h.Memory, HeldMemory{id, n.PageBytes, n.MemoryBytes / uint64(len(n.HostNodes))})
			}
		}
		if len(v.Nodes) == 0 {
			h.Memory = append(h.Memory, HeldMemory{-1, 0, v.MemoryBytes})
		}
		for _, d := range v.Devices {
			h.Devices = append(h.Devices, d.Address)
		}
		l.Held = append(l.Held, h)
	}
}
