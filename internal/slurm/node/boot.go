package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/cluster"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/pattern"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Allocation is what Slurm gave to a job, or to a step, on this node.
type Allocation struct {
	Node  string        // Slurm's name of it
	Cores string        // list of Slurm's own core numbers, "0-3,8"; "": all that this process may use
	Bytes uint64        // of memory; 0: not limited
	Dir   string        // working directory of the job
	Accel string        // "auto", or the site's own choice
	Name  string        // of the cluster
	Until int           // process id; the cluster ends when that process has; 0: it ends by itself
	Limit time.Duration // for the VMs to be ready
	// Devices are the PCI addresses of the VFs that the job has on this node.
	Devices []string
	Trunk   Trunk
}

// HostFault is an error that is the host's and not the user's: one of Faults. The plugin drains
// the host.
type HostFault struct {
	error
	Fault
}

func (h *HostFault) Unwrap() error { return h.error }

// Boot starts the VMs of a job, or of a step, on this node and leaves them to a supervisor; it
// returns when they are ready, or with nothing left. Errors of the host are a
// *HostFault.
func Boot(ctx context.Context, r Request, a Allocation) (*cluster.Record, error) {
	c, err := r.Cluster(a.Dir)
	if err != nil {
		return nil, err
	}
	if c.Accel == "" || c.Accel == "auto" {
		c.Accel = a.Accel
	}
	if err := checkHost(ctx, c, a); err != nil {
		return nil, err
	}
	if err := fit(c, a); err != nil {
		return nil, err
	}
	name := a.Name
	if name == "" {
		name = "job"
	}
	c.Name = name
	if c.Placement.Pages == "" || c.Placement.Pages == "auto" {
		c.Placement.Pages = "ordinary" // huge pages that happen to be free are other jobs'
	}
	spec.Defaults(c)
	if err := share(c, r.VF, a); err != nil {
		return nil, err
	}
	trunk, err := a.Trunk.trunk(c, a.Node)
	if err != nil {
		return nil, err
	}
	for i := range c.VMs {
		c.VMs[i].Name = hostPrefix(a.Node) + c.VMs[i].Name
	}
	if err := spec.Validate(c); err != nil {
		return nil, err
	}
	// The VMs run on the cores of the allocation: those that this thread hands on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := bind(a.Cores); err != nil {
		return nil, err
	}
	got, err := cluster.Supervised(ctx, cluster.Options{Spec: c, Command: "srun --vm", BootTimeout: a.Limit, Until: a.Until, Devices: append([]string{}, a.Devices...), Trunk: trunk})
	if err != nil {
		return nil, err
	}
	return cluster.Find(got)
}

// checkHost looks at what a host must have for any VM; what it lacks is its own fault, unless the
// user's own choice is what is missing.
func checkHost(ctx context.Context, c *spec.Cluster, a Allocation) error {
	blame := func(own bool, f Fault, err error) error {
		if err == nil || own {
			return err
		}
		return &HostFault{err, f}
	}
	path, err := qemu.Find(c.QEMU)
	if err == nil {
		_, err = qemu.Probe(ctx, path)
	}
	if err != nil {
		return blame(c.QEMU != "", faultParts, err)
	}
	if _, err := image.FindKernel(c.Kernel); err != nil {
		return blame(c.Kernel != "", faultParts, err)
	}
	if _, _, err := host.DetectAccel(c.Accel); err != nil {
		return blame(a.Accel == "" || a.Accel == "auto", faultAccel, err)
	}
	_, err = cluster.Base()
	return blame(false, faultParts, err)
}

// What a QEMU takes besides its VM's memory, and the least that a VM gets where the job's memory is shared
// out, bytes.
const (
	overhead  = 192 << 20
	leastEach = 192 << 20
	grain     = 32 << 20
)

// fit gives the VMs the job's memory where the user does not say how much, and says by how much it
// falls short otherwise.
func fit(c *spec.Cluster, a Allocation) error {
	said := len(c.VMs) > 0 && c.VMs[0].Memory != 0
	for _, g := range c.VMs {
		said = said && g.Memory != 0
	}
	groups := c.VMs
	if len(groups) == 0 {
		c.VMs = []spec.Group{{Count: 1}}
		groups = c.VMs
	}
	var vms, fixed uint64
	for i := range groups {
		g := &groups[i]
		n := uint64(max(g.Count, 1))
		if g.Memory != 0 {
			fixed += n * uint64(g.Memory)
		} else {
			vms += n
		}
		fixed += n * overhead
	}
	var region uint64
	if c.Region.Size != nil {
		region = uint64(*c.Region.Size)
	} else if total := count(groups); total > 1 {
		region = 64 << 20
	}
	if a.Bytes == 0 {
		return nil
	}
	need := fixed + region
	if vms > 0 {
		if a.Bytes > need {
			each := (a.Bytes - need) / vms / grain * grain
			if each >= leastEach {
				each = min(each, 2<<30)
				for i := range groups {
					if groups[i].Memory == 0 {
						groups[i].Memory = spec.Size(each)
					}
				}
				return nil
			}
		}
		need += vms * leastEach
	}
	if need <= a.Bytes || a.Bytes == 0 {
		return nil
	}
	return fmt.Errorf("the job's %s of memory on %s do not hold its VMs, which take %s with QEMU and the region: add --mem=%dM",
		spec.Size(a.Bytes), a.Node, spec.Size(need), (need+(1<<20)-1)>>20)
}

func count(groups []spec.Group) (n int) {
	for _, g := range groups {
		n += max(g.Count, 1)
	}
	return n
}

var notHostName = pattern.Lazy(`[^a-z0-9-]+`)

// hostPrefix is what the names of a node's VMs start with, so that each VM of a job has a name of its own.
func hostPrefix(node string) string {
	p := strings.Trim(notHostName().ReplaceAllString(strings.ToLower(node), "-"), "-")
	if len(p) > 30 {
		p = p[:30]
	}
	if p == "" || p[0] < 'a' || p[0] > 'z' {
		p = "n" + p
	}
	return p + "-"
}

// bind binds this thread, and what it starts, to the CPUs of Slurm's cores.
func bind(cores string) error {
	if cores == "" {
		return nil
	}
	h, err := topology.Read("/")
	if err != nil {
		return err
	}
	cpus, err := coreCPUs(h, cores)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to the job's CPUs %v: %w", cpus, err)
	}
	return nil
}

// coreCPUs gives the CPUs of a list of Slurm's core numbers: cores counted through the sockets, as
// slurmd numbers them (Slurm, slurmd/common/xcpuinfo). A number that the host does not have is left out: slurmd
// may be told of more than there are (config_overrides).
func coreCPUs(h *topology.Host, list string) ([]int, error) {
	want, err := topology.ParseList(list, topology.MaxCPUs)
	if err != nil {
		return nil, fmt.Errorf("Slurm's list of cores: %w", err)
	}
	type core struct{ pkg, core int }
	var order []core
	of := map[core][]int{}
	for _, c := range h.CPUs {
		if c.Core < 0 {
			continue
		}
		k := core{c.Package, c.Core}
		if of[k] == nil {
			order = append(order, k)
		}
		of[k] = append(of[k], c.ID)
	}
	sort.SliceStable(order, func(i, j int) bool {
		if order[i].pkg != order[j].pkg {
			return order[i].pkg < order[j].pkg
		}
		return order[i].core < order[j].core
	})
	allowed := map[int]bool{}
	for _, c := range h.CPUs {
		allowed[c.ID] = c.Usable()
	}
	var cpus []int
	for _, n := range want {
		if n < 0 || n >= len(order) {
			continue
		}
		for _, id := range of[order[n]] {
			if allowed[id] {
				cpus = append(cpus, id)
			}
		}
	}
	if len(cpus) == 0 {
		return nil, errors.New("none of the job's cores " + strconv.Quote(list) + " can be used on this host")
	}
	sort.Ints(cpus)
	return cpus, nil
}
