package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"gopkg.in/yaml.v3"
)

// Bounds of a plan that is read from a file.
const (
	loadBytes = 64 << 20
	loadVMs   = 1 << 16
	loadVCPUs = 4096
	loadNodes = 1024
)

// Load reads a plan that Write wrote (YAML or JSON) and checks its contents.
func Load(r io.Reader) (*Plan, error) {
	b, err := io.ReadAll(io.LimitReader(r, loadBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > loadBytes {
		return nil, errors.New("plan: larger than 64 MiB")
	}
	d := yaml.NewDecoder(bytes.NewReader(b)) // JSON is YAML
	d.KnownFields(true)
	p := &Plan{}
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("plan: version %d: this program knows version 1", p.Version)
	}
	if len(p.VMs) == 0 || len(p.VMs) > loadVMs {
		return nil, fmt.Errorf("plan: %d VMs", len(p.VMs))
	}
	for i := range p.VMs {
		if err := p.VMs[i].check(); err != nil {
			return nil, fmt.Errorf("plan: vms[%d]: %w", i, err)
		}
	}
	return p, nil
}

// check verifies the invariants of a VM that Make guarantees.
func (v *VM) check() error {
	if v.VCPUs < 1 || v.VCPUs > loadVCPUs || v.Sockets < 1 || v.Dies < 1 || v.Cores < 1 || v.Threads < 1 {
		return fmt.Errorf("%d vCPUs in %d x %d x %d x %d", v.VCPUs, v.Sockets, v.Dies, v.Cores, v.Threads)
	}
	if v.Sockets > v.VCPUs || v.Dies > v.VCPUs || v.Cores > v.VCPUs || v.Threads > v.VCPUs ||
		v.Sockets*v.Dies > v.VCPUs || v.Sockets*v.Dies*v.Cores > v.VCPUs || v.Sockets*v.Dies*v.Cores*v.Threads != v.VCPUs {
		return fmt.Errorf("%d vCPUs are not %d sockets x %d dies x %d cores x %d threads", v.VCPUs, v.Sockets, v.Dies, v.Cores, v.Threads)
	}
	if len(v.Pins) != 0 && len(v.Pins) != v.VCPUs {
		return fmt.Errorf("%d pins for %d vCPUs", len(v.Pins), v.VCPUs)
	}
	if v.MemoryBytes == 0 || v.MemoryBytes > 1<<56 || len(v.Nodes) > loadNodes {
		return fmt.Errorf("%d bytes of memory, %d nodes", v.MemoryBytes, len(v.Nodes))
	}
	seen := make([]bool, v.VCPUs)
	var mem uint64
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.ID != i {
			return fmt.Errorf("nodes[%d] has id %d", i, n.ID)
		}
		if len(n.Distances) != 0 && len(n.Distances) != len(v.Nodes) {
			return fmt.Errorf("nodes[%d]: %d distances for %d nodes", i, len(n.Distances), len(v.Nodes))
		}
		for j, d := range n.Distances {
			if d < 10 || d > 254 || (i == j) != (d == 10) {
				return fmt.Errorf("nodes[%d]: distance %d to node %d: 10 for itself, 11 to 254 for others", i, d, j)
			}
		}
		for _, c := range n.VCPUs {
			if c < 0 || c >= v.VCPUs || seen[c] {
				return fmt.Errorf("nodes[%d]: vCPU %d is not one of the VM's, or is there twice", i, c)
			}
			seen[c] = true
		}
		if mem += n.MemoryBytes; n.MemoryBytes > 1<<56 {
			return fmt.Errorf("nodes[%d]: %d bytes", i, n.MemoryBytes)
		}
	}
	if len(v.Nodes) > 0 && mem != v.MemoryBytes {
		return fmt.Errorf("nodes have %d bytes together, the VM %d", mem, v.MemoryBytes)
	}
	for i := range v.Devices {
		d := &v.Devices[i]
		if d.Node >= len(v.Nodes) && d.Node > 0 {
			return fmt.Errorf("devices[%d]: there is no node %d", i, d.Node)
		}
	}
	return nil
}
