package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/bench/machine"
	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/host"
	"nearmetal/internal/host/check"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Options are a user's request, by the flags of nearmetal bench run, which errors name.
type Options struct {
	Variants          []string // "native" and "vm"
	VariantsChosen    bool     // by the user; otherwise they are the default
	Cores             []int    // of additional native variants
	Ablate            []string // as in Wish
	MPI               []string // names or paths of launchers; none: the first library found
	Label, Kind       string   // of a VM that nearmetal did not make; "": none
	InJobs            bool     // it runs in Slurm jobs
	Repetitions       int      // 0: the default
	RepetitionsChosen bool
	Warmup            int
	Time              time.Duration // time limit of the run; 0: unlimited
	Quick             bool
	Paper             string
	Set               []string // PARAMETER=VALUE[,VALUE...]
	PeakPerCore       float64  // GFLOP/s; 0: computed
	SkipMissing       bool
	KeepWork          bool
	Traffic           bool

	KernelDirs  []string // of nearmetal's own programs
	ProviderDir string   // of its libfabric provider; "": none
	Version     string   // of nearmetal
	Command     []string // as typed by the user

	// VMs returns the cluster file of the VMs, defaults filled in. A run without VMs does not call it.
	VMs func() (*spec.Cluster, error)
	// PlanHosts queries the topologies of a cluster file's hosts, and plans the VMs on them.
	PlanHosts func(*spec.Cluster) (*plan.Plan, []topology.Host, error)
}

// UsageError reports that options contradict each other or are out of range.
type UsageError struct{ error }

func (e *UsageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// maxRepetitions bounds repetitions and warm-ups of a point.
const maxRepetitions = 1000

// New returns the request for options, without its suites, the record of its run, and a line for the user; "": none.
// Invalid options are a UsageError.
func New(ctx context.Context, o Options) (q Request, r *record.Run, notice string, err error) {
	if err := o.foreign(); err != nil {
		return q, nil, "", err
	}
	w := Wish{Cores: o.Cores, Ablate: o.Ablate}
	w.Host, w.CPUs = machine.Facts()
	for _, v := range o.Variants {
		switch v {
		case "native":
			w.Native = true
		case "vm":
			w.VM = true
		default:
			return q, nil, "", usagef("--variants: %q is neither native nor vm (see also --cores and --ablate)", v)
		}
	}
	if w.MPI, err = flavours(ctx, o.MPI, o.ProviderDir); err != nil {
		return q, nil, "", err
	}
	var sshHosts []string
	if w.VM || len(o.Ablate) > 0 {
		if notice, sshHosts, err = o.machines(&w); err != nil {
			return q, nil, "", err
		}
		w.Host.Acceleration = w.Spec.Accel
	}
	if q.Variants, err = Variants(w); err != nil {
		return q, nil, "", &UsageError{err}
	}
	if q.Set, err = settings(o.Set); err != nil {
		return q, nil, "", err
	}
	q.Decide = o.Repetitions == 0 && !o.Quick && o.Time == 0 && !o.InJobs && Comparable(q.Variants)
	if q.Repetitions, err = o.repetitions(q.Decide); err != nil {
		return q, nil, "", err
	}
	q.Warmup, q.Time, q.Quick, q.Paper = o.Warmup, o.Time, o.Quick, o.Paper
	q.KernelDirs, q.SkipMissing, q.KeepWork, q.Traffic = o.KernelDirs, o.SkipMissing, o.KeepWork, o.Traffic
	if q.PeakPerCore = o.PeakPerCore; q.PeakPerCore == 0 {
		q.PeakPerCore = machine.PeakPerCore()
	}
	for _, f := range w.MPI {
		w.Host.Versions[f.Name] = f.Launcher.String()
	}
	w.Host.Versions["nearmetal"] = o.Version
	r = &record.Run{
		Version: record.Version, Nearmetal: o.Version, Started: time.Now().UTC(),
		Command: o.Command, Quick: q.Quick, Host: w.Host, SSHHosts: sshHosts,
	}
	profile := check.Profile("")
	if o.Kind != "" {
		profile = check.Guest
	}
	if len(sshHosts) == 0 { // for hosts reached by ssh it is not known
		r.Checks = checks(ctx, profile)
	}
	for i := range q.Variants {
		if o.Kind != "" {
			q.Variants[i].inForeignVM(o.Label, r)
		}
		r.Variants = append(r.Variants, q.Variants[i].Variant)
	}
	return q, r, notice, nil
}

// foreign checks the options of a run inside a VM that nearmetal did not make, and sets this machine as the only
// variant.
func (o *Options) foreign() error {
	switch {
	case o.Kind == "" && o.Label == "":
		return nil
	case o.Kind != "vm":
		return usagef("--variant LABEL goes with --kind vm")
	case o.Label == "":
		return usagef("--kind vm needs --variant: the label of this VM, such as EC2.c3.2xlarge")
	case len(o.Cores) > 0 || len(o.Ablate) > 0:
		return usagef("--kind vm measures this VM as it is: leave out --cores and --ablate")
	case o.VariantsChosen:
		return usagef("--kind vm has one variant, this VM: leave out --variants")
	}
	o.Variants = []string{"native"}
	return nil
}

// repetitions returns the number per point, after checking all options that bound a run's duration.
func (o *Options) repetitions(decide bool) (int, error) {
	n := o.Repetitions
	if n == 0 {
		n = MinRepetitions
		if decide {
			n = FirstLook()
		} else if o.Quick {
			n = 3
		}
	}
	switch {
	case o.Time < 0 || o.Time > 0 && o.RepetitionsChosen:
		return 0, usagef("--time: a time such as 4h, and without --repetitions")
	case n < MinRepetitions && !o.Quick:
		return 0, usagef("--repetitions: %d are too few for an interval: take at least %d, or --quick", n, MinRepetitions)
	case n < 1 || n > maxRepetitions || o.Warmup < 0 || o.Warmup > maxRepetitions:
		return 0, usagef("--repetitions and --warmup: between 0 and %d", maxRepetitions)
	}
	return n, nil
}

// machines adds the VMs to a wish. It returns a line for the user, and the names of hosts that ssh reaches and that
// have VMs.
func (o *Options) machines(w *Wish) (notice string, sshHosts []string, err error) {
	if w.Spec, err = o.VMs(); err != nil {
		return "", nil, err
	}
	if len(w.Spec.Placement.Hosts) > 0 {
		switch {
		case o.InJobs:
			return "", nil, usagef("placement.hosts: a job's hosts are Slurm's choice: leave the key out")
		case len(o.Cores) > 0 || w.Native && o.VariantsChosen:
			return "", nil, usagef("placement.hosts: native programs would run on this machine alone: give --variants vm, without --cores")
		}
		w.Native = false
		p, hosts, err := o.PlanHosts(w.Spec)
		if err != nil {
			return "", nil, err
		}
		return w.overHosts(p, hosts)
	}
	accel, why, err := host.DetectAccel(w.Spec.Accel)
	if err != nil {
		return "", nil, err
	}
	if w.Emulated = accel == host.TCG; w.Emulated && why != "" {
		notice = why + ": they are marked, and no ratio is made of them"
	}
	w.Spec.Accel = string(accel) // it need not be detected, and reported, at each boot
	return notice, nil, nil
}

// overHosts adds hosts that ssh reaches, with their planned VMs, to a wish. This machine is then not described: the
// record's host is the first of them. It returns a line for the user and the names of the hosts that have VMs.
func (w *Wish) overHosts(p *plan.Plan, hosts []topology.Host) (string, []string, error) {
	type share struct {
		vms, vcpus int
		memory     uint64
	}
	of := map[string]share{}
	for _, v := range p.VMs {
		s := of[v.Host]
		s.vms, s.vcpus, s.memory = s.vms+1, s.vcpus+v.VCPUs, s.memory+v.MemoryBytes
		of[v.Host] = s
		w.VCPUs += v.VCPUs
	}
	var names []string
	least := 0
	for i := range hosts {
		h := &hosts[i]
		s, ok := of[h.Name]
		if !ok {
			continue
		}
		if len(names) > 0 && s != of[names[0]] {
			return "", nil, usagef("placement.hosts: %s and %s do not get the same VMs (see nearmetal plan), so that no number of ranks would be even: change --vms", names[0], h.Name)
		}
		names = append(names, h.Name)
		if facts := machine.Of(h); len(names) == 1 {
			facts.Versions = w.Host.Versions
			w.Host, least = facts, facts.Cores
		} else {
			least = min(least, facts.Cores)
		}
	}
	w.Hosts, w.CPUs = len(names), make([]int, least)
	if w.Emulated = w.Spec.Accel == string(host.TCG); w.Emulated {
		return "the hosts emulate VMs: they are marked, and no ratio is made of them", names, nil
	}
	return "", names, nil
}

// inForeignVM turns a native variant of this machine into the VM, called label, that the machine is.
func (v *Variant) inForeignVM(label string, r *record.Run) {
	v.Label, v.Kind, v.Foreign = strings.Replace(v.Label, "native."+strconv.Itoa(v.Cores), label, 1), "vm", true
	v.Host, v.Checks, v.KeptBack = &r.Host, r.Checks, 0
	v.Description = "in a VM that nearmetal did not make, " + strings.TrimPrefix(v.Description, "natively ")
	v.Baseline = ""
}

// checks returns the host's state by nearmetal check as JSON, or nil.
func checks(ctx context.Context, profile check.Profile) json.RawMessage {
	rep, err := check.Run(ctx, check.Options{Profile: profile})
	if err != nil {
		return nil
	}
	text, err := json.Marshal(rep)
	if err != nil {
		return nil
	}
	return text
}

// flavours returns the MPI libraries with these names, or without names the first one that is found.
func flavours(ctx context.Context, names []string, providerDir string) ([]mpi.Flavour, error) {
	if len(names) == 0 {
		for _, name := range []string{"openmpi", "mpich"} {
			if f, err := mpi.Find(ctx, name, "", suite.ProgramsDir()); err == nil {
				return []mpi.Flavour{f}, nil
			}
		}
		return []mpi.Flavour{{Name: "none"}}, nil
	}
	var out []mpi.Flavour
	for _, name := range names {
		f, err := mpi.Find(ctx, name, providerDir, suite.ProgramsDir())
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// settings parses the values of --set.
func settings(list []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" || value == "" {
			return nil, usagef("--set: %q is not PARAMETER=VALUE", s)
		}
		out[name] = strings.Split(value, ",")
	}
	return out, nil
}
