package node

import (
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strings"

	"nearmetal/internal/host"
	"nearmetal/internal/host/hugepage"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// pageSizes are the page sizes of --vm-pages, in bytes; 0: ordinary pages.
var pageSizes = map[string]uint64{"2MiB": 2 << 20, "1GiB": 1 << 30, "ordinary": 0}

// Pages returns the huge pages that the VMs of a request need on the nodes of this host according to their plan,
// which assumes that each node can make all its memory into such pages. The VMs are bounded by the allocation,
// regardless of the request. Pages runs as root; it opens no file that the request names.
func Pages(r Request, a Allocation) ([]hugepage.Need, error) {
	size := pageSizes[r.Pages]
	if size == 0 {
		return nil, nil
	}
	if a.Bytes == 0 {
		return nil, errors.New("--vm-pages: Slurm does not count memory here (SelectTypeParameters lacks Memory), so no pages of it can be kept for a job")
	}
	if r.File != "" && (r.VMs == 0 || r.Memory == 0) {
		return nil, errors.New("--vm-pages with a cluster file needs --vms-per-node and --vm-memory: root does not read the file")
	}
	r.File, r.Root = "", ""
	c, err := r.Cluster("/")
	if err != nil {
		return nil, err
	}
	// Pinning depends on the accelerator and changes the plan.
	if accel, _, err := host.DetectAccel(a.Accel); err == nil {
		c.Accel = string(accel)
	}
	cpus, err := a.cpus()
	if err != nil {
		return nil, err
	}
	if err := region(c, a, len(cpus)); err != nil {
		return nil, err
	}
	if err := fit(c, a); err != nil {
		return nil, err
	}
	spec.Defaults(c)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := bind(cpus); err != nil {
		return nil, err
	}
	h, err := topology.Read("/")
	if err != nil {
		return nil, err
	}
	return planned(c, h, size)
}

// planned returns the pages of a size in the plan of c on h, assuming that each node can make them of all its
// available memory.
func planned(c *spec.Cluster, h *topology.Host, size uint64) ([]hugepage.Need, error) {
	own := *h
	own.Nodes = append([]topology.Node(nil), h.Nodes...)
	for i := range own.Nodes {
		n := &own.Nodes[i]
		n.Pools = append([]topology.Pool(nil), n.Pools...)
		for k := range n.Pools {
			p := &n.Pools[k]
			more := int(min(n.AvailableBytes/p.PageBytes, 1<<31-1))
			if p.PageBytes != size {
				continue
			}
			p.Total += more
			p.Free += more
		}
	}
	p, err := plan.Make(c, []topology.Host{own}, plan.Ledger{})
	if err != nil {
		return nil, err
	}
	pages := map[int]int{}
	for i := range p.VMs {
		for _, n := range p.VMs[i].Nodes {
			if n.PageBytes != size || len(n.HostNodes) == 0 {
				return nil, fmt.Errorf("%s: its plan has no pages of %s on a node", p.VMs[i].Name, spec.Size(size))
			}
			each := n.MemoryBytes / uint64(len(n.HostNodes))
			for _, id := range n.HostNodes {
				pages[id] += int((each + size - 1) / size)
			}
		}
		if len(p.VMs[i].Nodes) == 0 {
			return nil, fmt.Errorf("%s: its plan has no pages of %s on a node", p.VMs[i].Name, spec.Size(size))
		}
	}
	var needs []hugepage.Need
	for id, n := range pages {
		needs = append(needs, hugepage.Need{Node: id, PageBytes: size, Pages: n})
	}
	sort.Slice(needs, func(i, j int) bool { return needs[i].Node < needs[j].Node })
	return needs, nil
}

// CoresOf returns the core numbers for a list of Slurm's CPU numbers, with threads CPUs per core
// (slurm_job_cpus_allocated_str_on_node(3): the threads of a core are consecutive).
func CoresOf(cpus string, threads int) (string, error) {
	list, err := topology.ParseList(cpus, topology.MaxCPUs)
	if err != nil {
		return "", fmt.Errorf("Slurm's list of CPUs: %w", err)
	}
	var cores []string
	last := -1
	for _, c := range list {
		if core := c / max(threads, 1); core != last {
			cores = append(cores, fmt.Sprint(core))
			last = core
		}
	}
	return strings.Join(cores, ","), nil
}
