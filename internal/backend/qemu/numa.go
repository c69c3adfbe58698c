package qemu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// numa describes the VM's NUMA nodes, each with its memory backend.
type numa struct {
	Nodes  []plan.Node
	Bytes  uint64 // of the VM's memory: the sum of the nodes
	CPUs   int    // vCPUs at the start
	Max    int    // possible ones
	Shared bool   // other processes can map the memory
}

func (n numa) Valid() error {
	var sum uint64
	ids, cpus := map[int]bool{}, map[int]bool{}
	for _, node := range n.Nodes {
		if node.ID < 0 || node.ID >= len(n.Nodes) || ids[node.ID] {
			return fmt.Errorf("node %d: nodes are numbered from 0 to %d, each once", node.ID, len(n.Nodes)-1)
		}
		ids[node.ID] = true
		for _, c := range node.VCPUs {
			if c < 0 || c >= n.CPUs || cpus[c] {
				return fmt.Errorf("node %d: vCPU %d is of no node, or of two (there are %d)", node.ID, c, n.CPUs)
			}
			cpus[c] = true
		}
		if err := n.validMemory(node); err != nil {
			return fmt.Errorf("node %d: %w", node.ID, err)
		}
		sum += node.MemoryBytes
	}
	switch {
	case len(n.Nodes) > 128:
		return fmt.Errorf("%d nodes: at most 128", len(n.Nodes))
	case len(n.Nodes) > 0 && sum != n.Bytes:
		return fmt.Errorf("the nodes' memory is %s, the VM's %s", size(sum), size(n.Bytes))
	case len(n.Nodes) > 0 && len(cpus) != n.CPUs:
		return fmt.Errorf("%d of %d vCPUs are of no node", n.CPUs-len(cpus), n.CPUs)
	}
	return nil
}

func (n numa) validMemory(node plan.Node) error {
	if page := node.PageBytes; page != 0 && page != 4096 && page != 2<<20 && page != 1<<30 {
		return fmt.Errorf("pages of %d bytes: 4 KiB, 2 MiB or 1 GiB", page)
	}
	if node.MemoryBytes%max(mib, node.PageBytes) != 0 {
		return fmt.Errorf("memory of %d bytes is not a whole number of pages of %s", node.MemoryBytes, size(max(mib, node.PageBytes)))
	}
	for _, h := range node.HostNodes {
		if h < 0 || h > 1023 {
			return fmt.Errorf("host node %d: 0 to 1023", h)
		}
	}
	if len(node.Distances) == 0 {
		return nil
	}
	if len(node.Distances) != len(n.Nodes) {
		return fmt.Errorf("%d distances for %d nodes", len(node.Distances), len(n.Nodes))
	}
	for i, d := range node.Distances {
		self := n.Nodes[i].ID == node.ID
		if d > 254 || self && d != 10 || !self && d <= 10 {
			return errors.New("distances are 10 to the node itself, and 11 to 254 to others")
		}
	}
	return nil
}

func (n numa) Args() []string {
	var args []string
	for i, node := range n.Nodes {
		cpus := slices.Clone(node.VCPUs)
		if i == 0 {
			// Possible vCPUs that are not present also need a node.
			for c := n.CPUs; c < n.Max; c++ {
				cpus = append(cpus, c)
			}
		}
		opts := []string{fmt.Sprintf("nodeid=%d", node.ID)}
		for _, r := range ranges(cpus) {
			opts = append(opts, "cpus="+r)
		}
		if node.MemoryBytes > 0 {
			id := fmt.Sprintf("mem%d", node.ID)
			args = append(args, n.backend(id, node)...)
			opts = append(opts, "memdev="+id)
		}
		args = append(args, "-numa", option("node", opts...))
	}
	for _, node := range n.Nodes {
		for i, d := range node.Distances {
			if n.Nodes[i].ID != node.ID {
				args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", node.ID, n.Nodes[i].ID, d))
			}
		}
	}
	return args
}

// backend returns the object that provides a node's memory.
func (n numa) backend(id string, node plan.Node) []string {
	var args []string
	kind, opts := "memory-backend-ram", []string{"id=" + id, "size=" + size(node.MemoryBytes)}
	switch {
	case node.PageBytes > 4096:
		kind = "memory-backend-memfd"
		opts = append(opts, "hugetlb=on", "hugetlbsize="+size(node.PageBytes), "share=on")
	case n.Shared:
		kind = "memory-backend-memfd"
		opts = append(opts, "share=on")
	}
	for _, r := range ranges(node.HostNodes) {
		opts = append(opts, "host-nodes="+r)
	}
	switch len(node.HostNodes) {
	case 0:
	case 1:
		opts = append(opts, "policy=bind")
	default:
		opts = append(opts, "policy=interleave") // over these nodes only
	}
	if node.PageBytes > 4096 {
		// A pool that is too small must be detected now, not by a SIGBUS during a job.
		opts = append(opts, "prealloc=on", fmt.Sprintf("prealloc-threads=%d", max(1, min(len(node.VCPUs), 16))))
		if len(node.HostNodes) > 0 {
			tc := "tc" + strconv.Itoa(node.ID)
			tcOpts := []string{"id=" + tc}
			for _, r := range ranges(node.HostNodes) {
				tcOpts = append(tcOpts, "node-affinity="+r)
			}
			args = append(args, "-object", option("thread-context", tcOpts...))
			opts = append(opts, "prealloc-context="+tc)
		}
	}
	return append(args, "-object", option(kind, opts...))
}

// ranges formats numbers, in any order, as QEMU's ranges: 0-3, 8.
func ranges(list []int) []string {
	if len(list) == 0 {
		return nil
	}
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return strings.Split(topology.FormatList(slices.Compact(sorted)), ",")
}
