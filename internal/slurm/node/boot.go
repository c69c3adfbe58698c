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

// Allocation is what Slurm allocated to a job, or to a step, on this node.
type Allocation struct {
	Node      string        // Slurm's name of it
	Cores     string        // list of Slurm's own core numbers, "0-3,8"; "": all that this process may use
	Bytes     uint64        // of memory; 0: not limited
	Dir       string        // working directory of the job
	Isolation string        // the least that the site asks for: a value of that key; "": auto
	Accel     string        // "auto", or the site's own choice
	Name      string        // of the cluster
	Until     int           // process id; the cluster ends when that process has; 0: it ends by itself
	Limit     time.Duration // for the VMs to be ready
	Region    *RegionLimit  // nil: the site does not count regions
	Devices   []string      // PCI addresses of the VFs that the job has on this node
	Overlay   Overlay
	Warn      func(line string) // what does not keep the VMs from booting, such as a fence that cannot be had; not nil
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
		c.Placement.Pages = "ordinary" // huge pages that happen to be free are other jobs'
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
	// The VMs run on the cores of the allocation: those that this thread hands on.
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

// CheckHost returns a *HostFault where this host lacks what any VM needs, with accel the site's choice of auto, kvm
// or tcg. Root runs it after a boot that failed: only what root finds drains the host. What was killed
// or took too long is no proof.
func CheckHost(ctx context.Context, accel string) error {
	err := checkHost(ctx, &spec.Cluster{Accel: accel}, Allocation{Accel: accel})
	if errors.Is(err, backend.ErrKilled) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("this host cannot be checked: %v", err)
	}
	return err
}

// checkHost looks at what a host must have for any VM; what it lacks may be its own fault, unless the
// user's own choice is what is missing. The folder of clusters is the user's own.
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

// region settles the size of the VMs' region, whoever said it: the request, a cluster file, a step's own option, or
// nobody. It has to be among the job's GRES where the site counts regions. cpus are the job's CPUs here.
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
			if open { // the job's CPUs are shared out
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

// RegionLimit is what a job has of the GRES that counts regions.
type RegionLimit struct {
	Gres  string // its name
	Bytes uint64
}

// ParseRegionLimit reads NAME:BYTES; "" is nil: the site does not count regions.
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

// cpus are those of the allocation, by the kernel's numbers.
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

// What a QEMU takes besides its VM's memory, and the least that a VM gets where the job's memory is shared
// out, bytes.
const (
	overhead  = 192 << 20
	leastEach = 192 << 20
	grain     = 32 << 20
)

// fit assigns the VMs the job's memory where the user does not say how much, and says by how much it
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

// bind binds this thread, and what it starts, to CPUs.
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

// coreCPUs returns the CPUs of a list of Slurm's core numbers: cores counted through the sockets, as
// slurmd numbers them (Slurm, slurmd/common/xcpuinfo). A number that the host does not have is left out: slurmd
// may be configured with more than there are (config_overrides).
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
