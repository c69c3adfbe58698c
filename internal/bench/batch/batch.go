// Package batch runs benchmarks on numbers of nodes as Slurm jobs, and merges their results into one run.
package batch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/text"
)

// Request describes the jobs to submit: one for each number of nodes and each kind of VMs.
type Request struct {
	Dir   string   // of the whole run; the jobs' directories are below it
	Nodes []int    // 2, 4, 8 …
	Words []string // nearmetal's command line, to which --in-job and --out are added
	VMs   []VM     // none: native only
	Args  []string // additional options of sbatch, such as --partition=long
	// Findings is the exit status of Words if repetitions failed.
	Findings int
}

// Findings is the error of jobs in which only repetitions failed.
type Findings struct{ error }

// Unwrap returns the errors of the jobs.
func (f *Findings) Unwrap() error { return f.error }

// VM is a kind of VMs that a job has: a job cannot have two.
type VM struct {
	Label string // of its variant
	Value string // of --vm, such as vms=2,memory=4GiB or a cluster file
}

// submitting are the flags of bench run, with a value each, that only the process that submits has.
var submitting = []string{"--nodes", "--out", "--sbatch"}

// JobWords returns the words of a job's command line: those of the one that submits it, without the flags of submitting.
func JobWords(words []string) []string {
	var out []string
	for i := 0; i < len(words); i++ {
		name, _, has := strings.Cut(words[i], "=")
		switch {
		case name == "--wait": // a switch
		case !slices.Contains(submitting, name):
			out = append(out, words[i])
		case !has:
			i++
		}
	}
	return out
}

// job is one of the jobs.
type job struct {
	nodes int
	vm    VM
	dir   string
	id    string
	err   error
}

// Run submits the jobs, waits for them, and writes the run that they make together. tell is called with a line
// whenever one was submitted or has ended. When ctx ends, the jobs are cancelled. Results of jobs are kept even if
// others failed. The error is a Findings if only repetitions failed.
func Run(ctx context.Context, q Request, tell func(line string)) error {
	if _, err := exec.LookPath("sbatch"); err != nil {
		return errors.New("--nodes needs Slurm, and sbatch is not found in PATH")
	}
	if err := os.MkdirAll(q.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the run's directory: %w", err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		tell(fmt.Sprintf(format, args...))
	}
	kinds := q.VMs
	if len(kinds) == 0 {
		kinds = []VM{{}}
	}
	jobs := make([]job, len(q.Nodes)*len(kinds))
	for i := range jobs {
		j := &jobs[i]
		j.nodes, j.vm = q.Nodes[i/len(kinds)], kinds[i%len(kinds)]
		j.dir = filepath.Join(q.Dir, "nodes-"+strconv.Itoa(j.nodes))
		if len(kinds) > 1 {
			j.dir += "-" + j.vm.Label
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			if j.err = j.run(ctx, &q, say); j.err != nil {
				j.err = fmt.Errorf("the job on %d nodes%s: %w", j.nodes, j.with(&q), j.err)
			}
		}()
	}
	wait.Wait()
	failed := merge(q.Dir, jobs)
	repetitions := failed == nil
	for _, j := range jobs {
		failed = errors.Join(failed, j.err)
		var exit *exec.ExitError
		repetitions = repetitions && (j.err == nil || errors.As(j.err, &exit) && exit.ExitCode() == q.Findings)
	}
	if failed != nil && repetitions {
		return &Findings{failed}
	}
	return failed
}

// run submits a job and waits until it has ended.
func (j *job) run(ctx context.Context, q *Request, say func(string, ...any)) error {
	script := j.dir + ".sh"
	words := append(append([]string{}, q.Words...), "--in-job", strconv.Itoa(j.nodes), "--out", j.dir, "--wait")
	if len(q.VMs) > 1 {
		words = append(words, "--only", j.vm.Label)
	}
	text := "#!/bin/sh\nexec " + text.Shell(words...) + "\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return err
	}
	args := []string{"--wait", "--parsable", "--exclusive", "--nodes=" + strconv.Itoa(j.nodes),
		"--mem=0", // all of it, like the cores
		"--job-name=nearmetal-bench", "--output=" + j.dir + ".out"}
	if j.vm.Value != "" {
		args = append(args, "--vm="+j.vm.Value)
	}
	cmd := exec.Command("sbatch", append(append(args, q.Args...), script)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	j.id, _, _ = strings.Cut(strings.TrimSpace(line), ";") // JOB;CLUSTER
	if j.id != "" {
		say("job %s on %d nodes%s is submitted", j.id, j.nodes, j.with(q))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		if j.id != "" {
			exec.Command("scancel", j.id).Run()
		}
		cmd.Process.Kill()
		<-ended
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, lastLine(errs.String(), j.dir+".out"))
	}
	say("job %s on %d nodes%s has ended", j.id, j.nodes, j.with(q))
	return nil
}

// with names the VMs of a job if jobs differ by them.
func (j *job) with(q *Request) string {
	if len(q.VMs) < 2 {
		return ""
	}
	return " with " + j.vm.Label
}

// lastLine returns ": LINE", the last line of the output of sbatch or of the job itself.
func lastLine(said, file string) string {
	if text, err := os.ReadFile(file); err == nil && len(text) < 1<<20 {
		said += string(text)
	}
	if last := text.LastLine(said); last != "" {
		return ": " + last
	}
	return ""
}

// merge makes one run of the jobs' runs in dir. Native programs that ran in several jobs on one number of nodes, next
// to the VMs of each, have all their repetitions.
func merge(dir string, jobs []job) error {
	var whole *record.Run
	var samples []record.Sample
	var ids, nodes []string
	type place struct {
		cas, variant string
		nodes        int
	}
	reps := map[place]int{}
	for _, j := range jobs {
		run, part, _, err := record.Load(j.dir)
		if err != nil {
			continue // the job reports its error
		}
		if whole == nil {
			whole = run
		}
		if run.Started.Before(whole.Started) {
			whole.Started = run.Started
		}
		if run != whole {
			whole.Channels = append(whole.Channels, run.Channels...)
			whole.Traffic = append(whole.Traffic, run.Traffic...)
			whole.Unreached = append(whole.Unreached, run.Unreached...)
		}
		have := map[string]bool{}
		for _, v := range whole.Variants {
			have[v.Label] = true
		}
		for _, v := range run.Variants {
			if !have[v.Label] {
				whole.Variants = append(whole.Variants, v)
			}
		}
		clear(have)
		for _, c := range whole.Cases {
			have[c.Name] = true
		}
		for _, c := range run.Cases {
			if !have[c.Name] {
				whole.Cases = append(whole.Cases, c)
			}
		}
		ids, nodes = append(ids, j.id), append(nodes, strconv.Itoa(j.nodes))
		most := map[place]int{}
		for i := range part {
			s := &part[i]
			if s.Log != "" {
				s.Log = filepath.Join(filepath.Base(j.dir), s.Log)
			}
			at := place{s.Case, s.Variant, j.nodes}
			if s.Rep >= 0 {
				most[at] = max(most[at], s.Rep+1)
				s.Rep += reps[at]
			}
		}
		for at, n := range most {
			reps[at] += n
		}
		samples = append(samples, part...)
	}
	if whole == nil {
		return nil
	}
	whole.ID, whole.Ended = filepath.Base(dir), time.Now().UTC()
	whole.Command = append([]string{"nearmetal"}, os.Args[1:]...)
	whole.Slurm = map[string]string{"jobs": strings.Join(ids, ","), "nodes": strings.Join(nodes, ",")}
	lines, err := record.Lines(samples)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, record.SamplesFile), lines, 0o644); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	return record.SaveRun(dir, whole)
}
