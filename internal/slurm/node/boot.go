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

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Allocation is Slurm's allocation to a job, or to a step, on this node.
type Allocation struct {
	Node      string        // Slurm's name of it
	Cores     string        // list of Slurm's own core numbers, "0-3,8"; "": all that this process may use
	Bytes     uint64        // of memory; 0: not limited
	Dir       string        // working directory of the job
	Isolation string        // minimum isolation that the site requires: a value of that key; "": auto
	Accel     string        // "auto", or the site's own choice
	Name      string        // of the cluster
	Until     int           // id of the process whose end ends the cluster; 0: the cluster ends only on request
	Limit     time.Duration // for the VMs to be ready
	Region    *RegionLimit  // nil: the site does not count regions
	Devices   []string      // PCI addresses of the VFs that the job has on this node
	Overlay   Overlay
	Warn      func(line string) // called with problems that do not prevent booting, such as an unavailable isolation mechanism; not nil
}

// HostFault is an error caused by the host, not by the user: one of Faults. The plugin drains the host.
type HostFault struct {
	error
	Fault
}

func (h *HostFault) Unwrap() error { return h.error }

// Boot starts the VMs of a job, or of a step, on this node under a supervisor. It returns when they are ready, or on
// failure, with nothing left. Errors caused by the host are a *HostFault.
func Boot(ctx context.Context, r Request, a Allocation) (*state.Record, error) {
	c, err := r.Cluster(a.Dir)
	if err != nil {
		return nil, err
	}
	if err := c.AtLeastIsolation(a.Isolation); err != nil {
		return nil, err
	}
	if c.Accel == "" || c.Accel == "auto" {
		c.Accel = a.Accel
	}
	if err := checkHost(ctx, c, a); err != nil {
		return nil, err
	}
	if _, err := state.Base(); err != nil {
		return nil, err
	}
	cpus, err := a.cpus()
	if err != nil {
		return nil, err
	}
	warning, err := crowd(c, a.Node, len(cpus))
	if err != nil {
		return nil, err
	}
	if err := region(c, a, len(cpus)); err != nil {
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
		c.Placement.Pages = "ordinary" // free huge pages belong to other jobs
	}
	spec.Defaults(c)
	if err := share(c, r.VF, a); err != nil {
		return nil, err
	}
	overlay, err := a.Overlay.overlay(c, a.Node)
	if err != nil {
		return nil, err
	}
	for i := range c.VMs {
		c.VMs[i].Prefix(spec.HostPrefix(a.Node))
	}
	if err := spec.Validate(c); err != nil {
		return nil, err
	}
	// The VMs run on the cores of the allocation, because child processes inherit this thread's affinity.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := bind(cpus); err != nil {
		return nil, err
	}
	if warning != "" {
		a.Warn(warning)
	}
	got, err := cluster.Supervised(ctx, cluster.Start{Spec: c, Command: "srun --vm", Limited: true, BootTimeout: a.Limit, Until: a.Until,
		Devices: append([]string{}, a.Devices...), Overlay: overlay}, cluster.Events{Notice: a.Warn})
	if err != nil {
		return nil, err
	}
	return state.Find(got)
}

// CheckHost returns a *HostFault if this host lacks a requirement of every VM; accel is the site's choice of auto,
// kvm or tcg. Root runs it after a failed boot, because only root's own check drains the host. A check that was
// killed or timed out proves nothing.
func CheckHost(ctx context.Context, accel string) error {
	err := checkHost(ctx, &spec.Cluster{Accel: accel}, Allocation{Accel: accel})
	if errors.Is(err, backend.ErrKilled) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("this host cannot be checked: %v", err)
	}
	return err
}

// checkHost checks the host's requirements for any VM. A missing requirement is a fault of the host, unless the user
// has chosen it. The directory of clusters belongs to the user.
func checkHost(ctx context.Context, c *spec.Cluster, a Allocation) error {
	blame := func(own bool, f Fault, err error) error {
		if err == nil || own {
			return err
		}
		return &HostFault{err, f}
	}
	d, err := backend.Open("")
	if err != nil {
		return err
	}
	defer d.Close()
	var accel *backend.AccelError
	if _, err := d.Probe(ctx, c); errors.As(err, &accel) {
		return blame(a.Accel == "" || a.Accel == "auto", faultAccel, err)
	} else if err != nil {
		return blame(c.QEMU != "", faultParts, err)
	}
	if _, err := (image.Finder{Modules: c.KernelModules}).Find(c.Kernel); err != nil {
		return blame(c.Kernel != "", faultParts, err)
	}
	return nil
}

// region sets the size of the VMs' region, which may come from the request, a cluster file, a step's own option, or
// the default. If the site counts regions, it must fit the job's GRES. cpus is the number of the job's CPUs here.
func region(c *spec.Cluster, a Allocation, cpus int) error {
	byDefault := ""
	if c.Region.Size == nil {
		var size spec.Size
		if count(c.VMs) > 1 {
			vcpus, open := 0, false
			for _, g := range c.VMs {
				vcpus += max(g.Count, 1) * g.VCPUs
				open = open || g.VCPUs == 0
			}
			if open { // the VMs share the job's CPUs
				vcpus = max(vcpus, cpus, count(c.VMs))
			}
			size = spec.Size(plan.DefaultRegion(vcpus))
			byDefault = ", the default of these VMs,"
		}
		c.Region.Size = &size
	}
	size := uint64(*c.Region.Size)
	if a.Region == nil || size <= a.Region.Bytes {
		return nil
	}
	return fmt.Errorf("a region of %d MiB%s is not among the job's GRES (%d MiB are): add --gres=%s:%dM",
		size>>20, byDefault, a.Region.Bytes>>20, a.Region.Gres, size>>20)
}

// RegionLimit is a job's share of the GRES that counts regions.
type RegionLimit struct {
	Gres  string // name of the GRES
	Bytes uint64
}

// ParseRegionLimit parses NAME:BYTES; for "" it returns nil: the site does not count regions.
func ParseRegionLimit(text string) (*RegionLimit, error) {
	if text == "" {
		return nil, nil
	}
	name, number, _ := strings.Cut(text, ":")
	bytes, err := strconv.ParseUint(number, 10, 63)
	if err != nil || name == "" {
		return nil, fmt.Errorf("%.80q is not a GRES and its bytes", text)
	}
	return &RegionLimit{name, bytes}, nil
}

// cpus returns the CPUs of the allocation, by the kernel's numbers.
func (a Allocation) cpus() ([]int, error) {
	if a.Cores != "" {
		h, err := topology.Read("/")
		if err != nil {
			return nil, err
		}
		return coreCPUs(h, a.Cores)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var list []int
	for c := 0; len(list) < set.Count(); c++ {
		if set.IsSet(c) {
			list = append(list, c)
		}
	}
	return list, nil
}

// Memory of a QEMU process in addition to its VM's memory, and the minimum memory of a VM that gets a share of the
// job's memory, both in bytes.
const (
	overhead  = 192 << 20
	leastEach = 192 << 20
	grain     = 32 << 20
)

// fit divides the job's memory among the VMs if the user has not specified their memory; otherwise it returns an
// error with the missing amount if the job's memory is too small.
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
	if a.Bytes == 0 {
		return nil
	}
	need := fixed
	if c.Region.Size != nil {
		need += uint64(*c.Region.Size)
	}
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

// bind binds this thread, and the processes that it starts, to CPUs.
func bind(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to the job's CPUs %v: %w", cpus, err)
	}
	return nil
}

// coreCPUs returns the CPUs of a list of Slurm's core numbers: cores are numbered socket by socket, as slurmd does
// (Slurm, slurmd/common/xcpuinfo). Numbers that the host does not have are ignored, because slurmd may be configured
// with more cores than exist (config_overrides).
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
