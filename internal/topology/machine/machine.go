// Package machine writes the sysfs and proc files of a machine from a short description, so that plans and tests do not
// need the machine. The files are those that hwloc and nearmetal read.
package machine

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Machine is a description. All packages are equal; a node's cores are numbered consecutively. The zero value of a
// field means "none", or 1 if the field must be at least 1.
type Machine struct {
	Name     string `yaml:"name"`
	Note     string `yaml:"note"` // what the machine represents; for readers only
	Arch     string `yaml:"arch"` // x86_64 (default) or aarch64
	Vendor   string `yaml:"vendor"`
	Model    string `yaml:"model"`
	PhysBits int    `yaml:"physBits"`

	Packages     int `yaml:"packages"`
	DiesPer      int `yaml:"diesPerPackage"`
	NodesPer     int `yaml:"nodesPerPackage"`
	CoresPerNode int `yaml:"coresPerNode"`
	Threads      int `yaml:"threads"` // per core
	// L3 is the scope of a last-level cache: "package", "node", a number of groups in each node ("2"), or "none".
	L3 string `yaml:"l3"`
	// Sizes of L1 and L2 (per core) and of L3, in KiB.
	L1     int `yaml:"l1KiB"`
	L2     int `yaml:"l2KiB"`
	L3Size int `yaml:"l3KiB"`
	// Numbering is the numbering of CPUs: "threads-last" (first threads of all cores, then the second ones; default),
	// "threads-first" (siblings are neighbours) or "round-robin" (alternating between packages, as Dell's firmware
	// does; threads last).
	Numbering string `yaml:"numbering"`

	MemoryMiB int `yaml:"memoryMiB"` // of each node with CPUs
	FreeMiB   int `yaml:"freeMiB"`   // 0: 96 % of MemoryMiB
	// NoMemory are nodes with CPUs and without memory.
	NoMemory []int `yaml:"noMemory"`
	// MemoryOnly are additional nodes, without CPUs.
	MemoryOnly []MemoryNode `yaml:"memoryOnly"`
	// Distances are the rows of the SLIT; empty: 10, and 20 to others.
	Distances [][]int `yaml:"distances"`
	// DistanceLevels fills the SLIT by levels: [same package, same group of GroupPackages packages, others].
	DistanceLevels []int `yaml:"distanceLevels"`
	GroupPackages  int   `yaml:"groupPackages"`

	Pools    []Pool   `yaml:"pools"`
	Offline  []int    `yaml:"offline"`  // CPUs
	Isolated []int    `yaml:"isolated"` // CPUs
	Devices  []Device `yaml:"devices"`

	AllowedCPUs  string `yaml:"allowedCPUs"`  // of the job, list format
	AllowedNodes string `yaml:"allowedNodes"` // of the job, list format
}

// MemoryNode is a node without CPUs.
type MemoryNode struct {
	MemoryMiB     int `yaml:"memoryMiB"`
	BandwidthMBps int `yaml:"bandwidthMBps"`
	LatencyNs     int `yaml:"latencyNs"`
}

// Pool is a number of huge pages, the same on each of the nodes (on all with memory if none is named).
type Pool struct {
	PageKiB int   `yaml:"pageKiB"`
	Pages   int   `yaml:"pages"`
	Free    *int  `yaml:"free"` // unset: all
	Nodes   []int `yaml:"nodes"`
}

// Device is a PCI function below its own root port.
type Device struct {
	Address  string   `yaml:"address"`
	Root     string   `yaml:"root"` // pci0000:40
	Port     string   `yaml:"port"` // the root port's address
	Class    int      `yaml:"class"`
	Vendor   int      `yaml:"vendor"`
	Device   int      `yaml:"device"`
	Driver   string   `yaml:"driver"`
	Node     int      `yaml:"node"`
	Group    *int     `yaml:"group"` // IOMMU group; unset: none
	Net      []string `yaml:"net"`
	RDMA     []string `yaml:"rdma"`
	BARKiB   []int    `yaml:"barKiB"`
	TotalVFs int      `yaml:"totalVFs"`
	VFs      []string `yaml:"vfs"`      // addresses
	VFDevice int      `yaml:"vfDevice"` // device ID of the VFs
	VFDriver string   `yaml:"vfDriver"`
}

// File is one file, or a symbolic link if Link is set. Paths have no leading slash.
type File struct{ Path, Content, Link string }

// Parse reads a description (YAML) and settles it.
func Parse(r io.Reader) (*Machine, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	m := &Machine{}
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	if err := m.Settle(); err != nil {
		return nil, err
	}
	return m, nil
}

// Settle replaces zero values by their defaults and checks the description. Files needs a settled one; Parse returns
// one. The error names the value that is out of range.
func (m *Machine) Settle() error {
	for _, n := range []*int{&m.Packages, &m.DiesPer, &m.NodesPer, &m.CoresPerNode, &m.Threads, &m.GroupPackages} {
		if *n == 0 {
			*n = 1
		}
		if *n < 0 || *n > 1024 {
			return fmt.Errorf("machine: a count of %d: 1 to 1024", *n)
		}
	}
	if n := m.Packages * m.NodesPer; n+len(m.MemoryOnly) > 1024 || n*m.CoresPerNode*m.Threads > 16384 || n*m.CoresPerNode > 16384 {
		return fmt.Errorf("machine: more than 1024 nodes or 16384 CPUs")
	}
	if m.Arch == "" {
		m.Arch = "x86_64"
	}
	if m.MemoryMiB < 0 || m.FreeMiB < 0 || m.FreeMiB > m.MemoryMiB {
		return fmt.Errorf("machine: memory of %d MiB, %d free", m.MemoryMiB, m.FreeMiB)
	}
	if m.L3 == "" {
		m.L3 = "package"
	}
	switch m.L3 {
	case "none", "package", "node":
	default:
		if k, err := strconv.Atoi(m.L3); err != nil || k < 1 || m.CoresPerNode%k != 0 {
			return fmt.Errorf("machine: l3 %q: package, node, none, or a divisor of coresPerNode", m.L3)
		}
	}
	if len(m.Distances) == 0 && len(m.DistanceLevels) > 0 && len(m.DistanceLevels) != 3 {
		return fmt.Errorf("machine: distanceLevels has three numbers")
	}
	for _, d := range m.Devices {
		if strings.Contains(d.Address+d.Root+d.Port+d.Driver, "..") || d.Root == "" || d.Port == "" || d.Address == "" {
			return fmt.Errorf("machine: device %q needs address, root and port", d.Address)
		}
	}
	return nil
}

// cpu is the position of one thread.
type cpu struct{ id, pkg, die, node, l3, core, coreInPkg int }

// cpus returns all threads by id.
func (m *Machine) cpus() []cpu {
	nodes := m.Packages * m.NodesPer
	cores := nodes * m.CoresPerNode
	perPkg := m.NodesPer * m.CoresPerNode
	out := make([]cpu, cores*m.Threads)
	for core := 0; core < cores; core++ {
		node := core / m.CoresPerNode
		pkg := node / m.NodesPer
		in := core % perPkg
		l3 := -1
		switch m.L3 {
		case "none":
		case "package":
			l3 = pkg
		case "node":
			l3 = node
		default:
			k, _ := strconv.Atoi(m.L3)
			l3 = node*k + core%m.CoresPerNode/(m.CoresPerNode/k)
		}
		for t := 0; t < m.Threads; t++ {
			id := t*cores + core
			switch m.Numbering {
			case "threads-first":
				id = core*m.Threads + t
			case "round-robin":
				id = t*cores + in*m.Packages + pkg
			}
			out[id] = cpu{id, pkg, in * m.DiesPer / perPkg, node, l3, core, in}
		}
	}
	return out
}
