package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/batch"
	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/run"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/plan"
	reporting "nearmetal/internal/report"
	"nearmetal/internal/report/paper"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// benchFlags are the flags of bench run other than those of the VMs.
type benchFlags struct {
	variants, ablate, mpis, set []string
	cores                       []int
	repetitions, warmup         int
	quick, wait                 bool
	skipMissing, keepWork       bool
	traffic                     bool
	paper                       string
	peak                        float64
	out, resume                 string
	nodes                       []int
	sbatch                      []string
	inJob                       int
	only                        string
	variant, kind               string
	time                        time.Duration
}

func newBenchRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run SUITE[/EXPERIMENT]... [flags]",
		Short: "Run benchmarks, variants alternating",
		Long: `Runs benchmarks natively and in VMs and writes the results to a directory, by
default below nearmetal-bench in the working directory. The variants alternate
(A B A B). Warm-ups and repetitions with a wrong answer are discarded. Undecided
points are repeated, up to 28 times and for an hour. VMs are stopped while a
native program runs. An interrupted run continues with --resume. Results of
emulated VMs are marked and never enter a ratio.

The exit status is 3 if a repetition failed.`,
		Example: `  nearmetal bench run osu stream
  nearmetal bench run osu/latency --ablate region,pinning
  nearmetal bench run stream --ablate untuned,hugepages+pinning
  nearmetal bench run hpl --cores 44 --vms 1 --vcpus 44 --memory 144GiB
  nearmetal bench run osu --variants native --mpi openmpi,mpich,ivshmem
  nearmetal bench run --paper 004 --time 4h
  nearmetal bench run npb/cg --paper 004 --nodes 8 --set class=D
  nearmetal bench run osu/latency perftest --hosts node1,node2 --vms 2
  nearmetal bench run osu npb --variant EC2.c3.2xlarge --kind vm
  nearmetal bench run --resume nearmetal-bench/20261122-004500-osu`,
		ValidArgsFunction: completeSuites,
	}
	var f benchFlags
	flags := cmd.Flags()
	flags.StringSliceVar(&f.variants, "variants", []string{"native", "vm"}, "the `VARIANTS` that are compared; the first native one is the baseline")
	flags.DurationVar(&f.time, "time", 0, "choose sizes and repetitions so that the run takes this `TIME`, such as 4h, and intervals are as narrow as it allows")
	flags.StringVar(&f.variant, "variant", "", "`LABEL` for this run (requires --kind)")
	flags.StringVar(&f.kind, "kind", "", "`KIND` vm: this is a VM of a cloud or of another hypervisor, and is measured as one; bench import adds the run to another")
	complete(cmd, "kind", []string{"vm"})
	flags.IntSliceVar(&f.cores, "cores", nil, "also natively with `N` cores, the equal of VMs that leave some to the host; repeatable")
	flags.StringSliceVar(&f.ablate, "ablate", nil, "also VMs without a `SWITCH`, each a variant: "+strings.Join(run.Switches, ", ")+"; several at once joined by +; untuned: without hugepages, pinning and vnuma")
	flags.StringSliceVar(&f.mpis, "mpi", nil, "`MPI` libraries: "+strings.Join(mpi.Names, ", ")+", or a launcher's path, with +ivshmem behind it for the provider (default the first found)")
	flags.IntVar(&f.repetitions, "repetitions", 0, "`N` repetitions of each point (default 7, 14 or 28, until variants are decided; 5 where nothing is compared, with --time and in jobs; fewer only with --quick)")
	flags.IntVar(&f.warmup, "warmup", 1, "`N` repetitions before those, which are not counted")
	flags.BoolVar(&f.quick, "quick", false, "smoke test: small sizes, 3 repetitions, no verdict")
	flags.StringArrayVar(&f.set, "set", nil, "values in place of a suite's, `PARAMETER=VALUES`, for one experiment EXPERIMENT.PARAMETER=VALUES; repeatable")
	flags.StringVar(&f.paper, "paper", "", "use the sizes of a `PAPER` ("+strings.Join(paper.Names(), ", ")+"); without SUITE: run what repeats its figures on as many hosts")
	complete(cmd, "paper", paper.Names())
	flags.BoolVar(&f.skipMissing, "skip-missing", false, "leave out experiments that cannot run here")
	flags.Float64Var(&f.peak, "peak-gflops", 0, "theoretical peak of a core, `GFLOPS` in 1e9 operations a second (default computed from its vectors and frequency)")
	flags.StringVar(&f.out, "out", "", "`DIR` of the results (default nearmetal-bench/DATE-SUITES)")
	flags.StringVar(&f.resume, "resume", "", "go on with the run in `DIR`")
	flags.BoolVar(&f.wait, "wait", false, "wait for another benchmark on this machine to end, instead of refusing")
	flags.BoolVar(&f.traffic, "traffic", false, "count in warm-ups what ranks over nearmetal's provider send to each other, for the report")
	flags.BoolVar(&f.keepWork, "keep-work", false, "leave the programs' working directories")
	flags.IntSliceVar(&f.nodes, "nodes", nil, "submit a Slurm job of `N` nodes for each of these numbers, wait, and make one run of them")
	flags.StringArrayVar(&f.sbatch, "sbatch", nil, "an `OPTION` of sbatch for those jobs, such as --partition=long; repeatable")
	flags.IntVar(&f.inJob, "in-job", 0, "run as steps of the Slurm job around, which has this number of nodes")
	flags.Lookup("in-job").Hidden = true
	flags.StringVar(&f.only, "only", "", "of the VMs the variant of this `LABEL`, for --in-job")
	flags.Lookup("only").Hidden = true
	suites := addSuiteFlag(cmd)
	vms := addClusterFlags(cmd)
	flags.Lookup("vms").Usage = "number of VMs (default 2)"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		ctx, stop := interruptible()
		defer stop()
		if f.resume != "" {
			if len(args) > 0 {
				return usagef("--resume goes on with what was asked for then: leave out %q", args[0])
			}
			return carryOut(ctx, cmd, p, f.wait, func(ev run.Events) (run.Outcome, error) {
				return run.Resume(ctx, record.Find(f.resume), ev)
			})
		}
		if len(args) == 0 && f.paper == "" {
			return usagef("run needs at least one SUITE, or --paper")
		}
		list, err := suites()
		if err != nil {
			return err
		}
		picked, err := f.pick(list, args)
		if err != nil {
			return &usageError{err}
		}
		q, r, err := f.request(ctx, cmd, p, vms)
		if err != nil {
			return err
		}
		q.Suites = picked
		if f.inJob > 0 {
			if f.only != "" {
				q.Variants = run.Only(q.Variants, f.only)
				r.Variants = nil
				for _, v := range q.Variants {
					r.Variants = append(r.Variants, v.Variant)
				}
			}
			q.Variants = run.InJob(q.Variants, f.inJob)
		}
		if len(args) == 0 {
			args = []string{"paper", f.paper}
		}
		dir, err := record.NewDir(f.out, r.Started, args)
		if err != nil {
			return err
		}
		r.ID = filepath.Base(dir)
		if len(f.nodes) > 0 {
			return f.submit(ctx, cmd, p, dir, q)
		}
		return carryOut(ctx, cmd, p, f.wait, func(ev run.Events) (run.Outcome, error) {
			return run.Start(ctx, dir, q, r, ev)
		})
	}
	return cmd
}

// pick returns the suites and experiments to run: those of the arguments, or those that repeat the paper's figures on
// as many hosts.
func (f *benchFlags) pick(list []*suite.Suite, args []string) ([]*suite.Suite, error) {
	if f.paper == "" {
		return suite.Select(list, args)
	}
	p, err := paper.Open(f.paper)
	if err != nil {
		return nil, fmt.Errorf("--paper: %w", err)
	}
	if len(args) > 0 {
		return suite.Select(list, args)
	}
	hosts := f.nodes
	if len(hosts) == 0 {
		hosts = []int{max(1, f.inJob)}
	}
	return reporting.Repeating(list, p, hosts)
}

// submit submits the request to Slurm for each number of nodes.
func (f *benchFlags) submit(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, dir string, q run.Request) error {
	for _, n := range f.nodes {
		if n < 1 {
			return usagef("--nodes: %d is below 1", n)
		}
		for _, line := range q.Notes(n) {
			p.Printf("%s", line)
		}
	}
	b := batch.Request{Dir: dir, Nodes: f.nodes, Words: batch.JobWords(os.Args[1:]), Args: f.sbatch, Findings: exitFindings}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b.Words = append([]string{exe}, b.Words...)
	if b.VMs, err = run.JobVMs(dir, cmd.Flags().Lookup("file").Value.String(), q.Variants); err != nil {
		return err
	}
	st := p.Start(fmt.Sprintf("waiting for %s", count(len(f.nodes)*max(1, len(b.VMs)), "job")))
	err = batch.Run(ctx, b, func(line string) { p.Printf("%s", line) })
	if err != nil {
		st.Fail()
		if errors.As(err, new(*batch.Findings)) {
			return findings(err)
		}
		return err
	}
	st.Done()
	p.Close()
	fmt.Fprintln(cmd.OutOrStdout(), shown(dir))
	return nil
}

// request makes the request and the record of a run from the flags. It prints notices for the user.
func (f *benchFlags) request(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, vms func() (*spec.Cluster, []string, error)) (run.Request, *record.Run, error) {
	o := run.Options{
		Variants: f.variants, VariantsChosen: cmd.Flags().Changed("variants"), Cores: f.cores, Ablate: f.ablate, MPI: f.mpis,
		Label: f.variant, Kind: f.kind, InJobs: len(f.nodes) > 0 || f.inJob > 0,
		Repetitions: f.repetitions, RepetitionsChosen: cmd.Flags().Changed("repetitions"), Warmup: f.warmup, Time: f.time, Quick: f.quick,
		Paper: f.paper, Set: f.set, PeakPerCore: f.peak, SkipMissing: f.skipMissing, KeepWork: f.keepWork, Traffic: f.traffic,
		KernelDirs: run.KernelDirs(), ProviderDir: run.ProviderDir(), Version: versionText(), Command: append([]string{"nearmetal"}, os.Args[1:]...),
	}
	o.VMs = func() (*spec.Cluster, error) { return f.machines(cmd, p, vms) }
	o.PlanHosts = func(c *spec.Cluster) (*plan.Plan, []topology.Host, error) {
		st := p.Start("asking the hosts what they are")
		plan, hosts, _, err := fleet.PlanHosts(ctx, c)
		if err != nil {
			st.Fail()
			return nil, nil, err
		}
		st.Done()
		return plan, hosts, nil
	}
	q, r, notice, err := run.New(ctx, o)
	var wrong *run.UsageError
	if errors.As(err, &wrong) {
		return q, nil, &usageError{err}
	}
	if err != nil {
		return q, nil, err
	}
	if notice != "" {
		p.Printf("%s", notice)
	}
	return q, r, nil
}

func versionText() string { return strings.TrimSpace(version + " " + commit) }

// machines returns the VMs of the flags. Without a count it returns two, because one has no peer to communicate with.
func (f *benchFlags) machines(cmd *cobra.Command, p *terminal.Progress, vms func() (*spec.Cluster, []string, error)) (*spec.Cluster, error) {
	if !cmd.Flags().Changed("vms") && !cmd.Flags().Changed("file") {
		if err := cmd.Flags().Set("vms", "2"); err != nil {
			return nil, err
		}
	}
	c, _, err := vms()
	if err != nil {
		return nil, err
	}
	return c, sweep(p)
}

// tellEvery is the interval between two lines of progress in a log.
const tellEvery = 5 * time.Minute

// carryOut runs start on this machine while no other run does, shows its progress, and reports its outcome.
func carryOut(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, wait bool, start func(run.Events) (run.Outcome, error)) error {
	var lock *run.Lock
	defer func() {
		if lock != nil {
			lock.Release()
		}
	}()
	st := p.Start("measuring")
	// Without a live line, such as in a log, print a line with the time left now and then.
	var told time.Time
	live := terminal.Live(cmd.ErrOrStderr())
	out, err := start(run.Events{
		Alone: func() (err error) {
			lock, err = run.TakeLock(ctx, wait, func(line string) {
				p.Printf("%s", line)
				st.Detail("the other one ends first")
			})
			return err
		},
		Step: func(at run.Progress) {
			left := ""
			if at.Left > 0 {
				left = ", about " + at.Left.Round(time.Second).String() + " left"
			}
			of := ""
			if at.Total > 0 {
				of = fmt.Sprintf(" of %d", at.Total)
			}
			st.Detail("%d%s%s: %s", at.Done, of, left, at.What)
			if now := time.Now(); told.IsZero() {
				told = now
			} else if !live && left != "" && now.Sub(told) >= tellEvery {
				told = now
				p.Notef("%d%s%s: %s", at.Done, of, left, at.What)
			}
		},
		Notice: func(line string) { p.Printf("%s", line) },
	})
	cause := context.Cause(ctx)
	interrupted := cause != nil && errors.Is(err, ctx.Err())
	switch {
	case interrupted:
		st.Interrupt()
	case err != nil:
		st.Fail()
	default:
		st.Done()
	}
	p.Close()
	if !interrupted && err == nil {
		if d, e := reporting.Read(out.Dir); e == nil {
			for _, line := range reporting.Analyse(d, reporting.Tolerance{}).Overall() {
				fmt.Fprintln(cmd.ErrOrStderr(), text.Clean(line))
			}
		}
	}
	if out.Dir != "" {
		fmt.Fprintln(cmd.OutOrStdout(), shown(out.Dir))
	}
	if interrupted {
		fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: interrupted: go on with nearmetal bench run --resume %s\n", shown(out.Dir))
		return cause
	}
	if err != nil {
		return err
	}
	return failures(out)
}

// shown returns a path as a user reads it: relative if that is shorter.
func shown(path string) string {
	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, path); err == nil && len(rel) < len(path) {
			return rel
		}
	}
	return path
}

// failures returns findings for the failed repetitions: the first of each case and variant, with the lines that explain
// it.
func failures(out run.Outcome) error {
	var list errorList
	seen := map[string]bool{}
	for _, f := range out.Failed {
		if key := f.Case + " " + f.Variant; seen[key] {
			continue
		} else {
			seen[key] = true
		}
		what := f.Case + " " + f.Variant
		if f.Point != "" {
			what += " " + f.Point
		}
		lines := terminal.ErrorLines(f.Err)
		lines[0] = what + ": " + lines[0]
		if f.Log != "" {
			lines[0] += " (all of it: " + shown(f.Log) + ")"
		}
		list = append(list, &failed{lines})
	}
	if list == nil {
		return nil
	}
	return findings(append(list, fmt.Errorf("%s of the run failed; what was measured is kept", count(len(out.Failed), "repetition"))))
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// failed is an error of several lines.
type failed struct{ lines []string }

func (f *failed) Error() string   { return strings.Join(f.lines, "\n") }
func (f *failed) Lines() []string { return f.lines }
