package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/extract"
	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/process"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/host"
	"nearmetal/internal/traffic"
)

// emulatedPatience is the factor of a repetition's bound in emulated VMs.
const emulatedPatience = 10

// measured is the result of a repetition.
type measured struct {
	out, errs []byte // the program's output
	seconds   float64
	// Seconds of work that need not be repeated: the experiment's preparation, and the boot of VMs that stay up.
	prepared float64
	late     bool // it was killed at the bound of a run with a time limit
	values   []extract.Value
}

// invocation is a program as run by a variant at a point.
type invocation struct {
	words   []string // beginning with the launcher's
	env     []string // overrides the caller's
	cpus    []int
	dir     string // working directory
	values  map[string]string
	timeout time.Duration
	prepare time.Duration // bound of each command that prepares it
}

// command returns the invocation of a step; it accesses no file.
func (r *runner) command(x *experiment, p, v int) (invocation, error) {
	variant := &r.request.Variants[v]
	values, err := r.request.values(&x.def, x.points[p], variant)
	if err != nil {
		return invocation{}, err
	}
	c := invocation{values: values, cpus: variant.CPUs, timeout: x.def.Timeout}
	if variant.Emulated {
		c.timeout *= emulatedPatience
	}
	c.prepare = c.timeout
	if r.bound > 0 {
		c.timeout, c.prepare = min(c.timeout, r.bound), min(c.prepare, r.ahead)
	}
	if r.folder != nil {
		c.dir = filepath.Join(r.folder.dir, workDir, fmt.Sprintf("%s-%s-%d-%d", x.suite.Name, x.def.Name, v, p))
		if x.size > 0 {
			c.dir += fmt.Sprintf("-%d", x.size)
		}
	}
	values["program"], values["dir"] = x.paths[v], c.dir
	values["memory-mb"] = memoryMB()
	words, err := expandAll(x.prog.Command, values)
	if err != nil {
		return c, err
	}
	ranks, _ := suite.Count(values["ranks"], variant.total())
	threads, _ := suite.Count(values["threads"], variant.total())
	values["ranks"], values["threads"] = strconv.Itoa(ranks), strconv.Itoa(threads)
	c.env = append(c.env, variant.MPI.Env...)
	export := []string{}
	if x.def.Threads != "" {
		c.env, export = append(c.env, "OMP_NUM_THREADS="+values["threads"]), append(export, "OMP_NUM_THREADS")
	}
	for name, text := range x.def.Env {
		text, err := suite.Expand(text, values)
		if err != nil {
			return c, err
		}
		c.env, export = append(c.env, name+"="+text), append(export, name)
	}
	if x.def.Launch == "mpi" {
		if variant.overProvider() || variant.Kind == "vm" {
			c.env = append(c.env, channelsLog...)
		}
		if variant.Kind == "vm" {
			c.env = append(c.env, variant.MPI.InVMs()...)
		}
		if os.Geteuid() == 0 { // otherwise Open MPI refuses to run
			c.env = append(c.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		}
		l := mpi.Launch{Ranks: ranks, Threads: threads, Slots: variant.total(), CPUs: variant.CPUs, Export: export}
		l.Spread = x.def.Spread && variant.Spec != nil
		if variant.Step != nil {
			words = append(variant.Step.words(&variant.MPI, ranks, threads, x.def.RoundRobin), words...)
		} else {
			words = append(variant.MPI.Words(l), words...)
		}
	}
	if x.def.Launch == suite.LaunchPair && variant.Step != nil {
		words = append(variant.Step.pairWords(), words...)
		c.env = append(c.env, variant.Step.pairEnv()...)
	}
	c.words = words
	return c, nil
}

func memoryMB() string {
	n, err := host.AvailableMemory()
	if err != nil {
		return "1024"
	}
	return strconv.FormatUint(n>>20, 10)
}

// measure executes one repetition and parses its values.
func (r *runner) measure(ctx context.Context, s step) (measured, error) {
	x, v := &r.exps[s.exp], &r.request.Variants[s.variant]
	c, err := r.command(x, s.point, s.variant)
	if err != nil {
		return measured{}, err
	}
	begin := time.Now()
	if late, err := r.directory(ctx, x, c, s); err != nil {
		return measured{late: late}, err
	}
	prepared := time.Since(begin).Seconds()
	counts := ""
	if r.counts(s) {
		if counts, err = countsDir(c.dir); err != nil {
			return measured{}, explain(err, r.folder.dir)
		}
		c.env = append(c.env, traffic.Variable+"="+counts)
	}
	begin = time.Now()
	if err := r.vms.want(ctx, v, x, r); err != nil {
		return measured{}, err
	}
	if !r.severalVMs() { // they stay up: the next repetition does not boot them
		prepared += time.Since(begin).Seconds()
	}
	var res process.Result
	since := noCarried
	if counts != "" && v.Spec != nil {
		since = r.vms.carried()
	}
	if v.Spec == nil {
		res, err = process.Run(ctx, process.Command{Args: c.words, Env: natively(c.env), Dir: c.dir, CPUs: c.cpus, Timeout: c.timeout})
	} else {
		res, err = r.vms.run(ctx, x, v, c)
	}
	m := measured{out: res.Out, errs: res.Err, seconds: res.Seconds, prepared: prepared}
	switch {
	case err != nil:
		return m, err
	case res.TimedOut:
		r.vms.down() // hanging processes end with their VMs
		m.late = r.bound > 0
		return m, &extract.Error{What: res.Status, Near: tail(res)}
	case res.Status != "":
		return m, &extract.Error{What: filepath.Base(x.paths[s.variant]) + " failed: " + res.Status, Near: tail(res)}
	case res.Cut:
		return m, fmt.Errorf("it printed more than %d MiB", process.MaxOutput>>20)
	}
	text := res.Out
	if x.prog.Read != "" {
		if text, err = readBounded(filepath.Join(c.dir, x.prog.Read)); err != nil {
			return m, err
		}
		m.out = append(append(append([]byte(nil), res.Out...), "\n--- "+x.prog.Read+"\n"...), text...)
	}
	if err := extract.Check(text, x.prog.Check); err != nil {
		return m, err
	}
	if err := r.noteChannels(x, v, res.Err); err != nil {
		return m, err
	}
	if counts != "" {
		r.noteTraffic(s, counts, since())
	}
	r.versionIn(x, append(append([]byte(nil), res.Out...), text...))
	ranks, _ := strconv.Atoi(c.values["ranks"])
	threads, _ := strconv.Atoi(c.values["threads"])
	used := min(max(1, ranks*threads), v.total())
	m.values, err = extract.Values(text, x.prog.Output, extract.Context{Seconds: res.Seconds, Peak: r.request.PeakPerCore * float64(used)})
	return m, err
}

// tail returns the last lines of a failed program's output: of its error output if there is any.
func tail(r process.Result) []string {
	if len(r.Err) > 0 {
		return extract.Ends(r.Err)
	}
	return extract.Ends(r.Out)
}

// directory makes a step's working directory with its files, and prepares it the first time. late: the preparation
// was killed at the bound of a run with a time limit.
func (r *runner) directory(ctx context.Context, x *experiment, c invocation, s step) (late bool, err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return false, explain(err, r.folder.dir)
	}
	for name, text := range x.def.Files {
		text, err := suite.Expand(text, c.values)
		if err != nil {
			return false, err
		}
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			return false, explain(err, r.folder.dir)
		}
	}
	if x.prog.Read != "" { // the previous repetition's result must not be read again
		if err := os.Remove(filepath.Join(c.dir, x.prog.Read)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	if r.ready[c.dir] {
		return false, nil
	}
	for _, words := range x.def.Prepare {
		words, err := expandAll(words, c.values)
		if err != nil {
			return false, err
		}
		res, err := process.Run(ctx, process.Command{Args: words, Env: natively(c.env), Dir: c.dir, Timeout: c.prepare})
		if err != nil {
			return false, err
		}
		if res.Status != "" {
			return res.TimedOut && r.bound > 0, &extract.Error{What: "preparing it failed: " + words[0] + ": " + res.Status, Near: tail(res)}
		}
	}
	r.ready[c.dir] = true
	return false, nil
}

// readBounded reads a plain file that a program has written.
func readBounded(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the program has not written its results: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	return io.ReadAll(io.LimitReader(f, process.MaxOutput))
}
