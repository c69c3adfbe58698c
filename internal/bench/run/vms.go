package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"nearmetal/internal/bench/process"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
)

// vms is the single cluster that is up, with its purpose.
type vms struct {
	c      *cluster.Cluster
	key    string // variant and shape
	paused bool
	notice func(line string)
}

// want makes sure that the VMs that a variant needs for an experiment are up and running; for a native variant the
// VMs that are up are paused, so that they use no CPU time.
func (m *vms) want(ctx context.Context, v *Variant, x *experiment, r *runner) error {
	if v.Spec == nil {
		return m.pause()
	}
	shape := "several"
	if x.def.Launch != "mpi" && x.def.Launch != suite.LaunchPair {
		shape = "one"
	}
	// Variants that differ only by their MPI share their VMs.
	text, err := json.Marshal(v.Spec)
	if err != nil {
		return err
	}
	key := shape + string(text)
	if m.c != nil && m.key == key && m.lives() {
		return m.resume()
	}
	m.down()
	c := copySpec(text)
	if shape == "one" {
		oneVM(c)
	}
	c.Shares = append(c.Shares, spec.Share{Path: r.folder.dir, Target: r.folder.dir, Mode: "rw"})
	c.RootWrites = true // its own directory, for its own programs
	c.Name = ""
	m.c, err = cluster.Up(ctx, cluster.Start{Spec: c, Command: "nearmetal bench run"}, cluster.Events{Notice: m.notice})
	if err != nil {
		return fmt.Errorf("the VMs of %s did not come up: %w", v.Label, err)
	}
	m.key = key
	return m.note(r)
}

// note stores the plan of the first VMs in the record.
func (m *vms) note(r *runner) error {
	if r.record.Plan != nil {
		return nil
	}
	rec := m.c.Record()
	text, err := json.Marshal(rec.Plan)
	if err != nil {
		return err
	}
	r.record.Plan, r.record.Host.Acceleration = text, rec.Accel
	r.record.PlanSVG = planPicture(rec.Plan)
	return record.SaveRun(r.folder.dir, r.record)
}

func copySpec(text []byte) *spec.Cluster {
	var c spec.Cluster
	json.Unmarshal(text, &c) // it was marshalled above
	return &c
}

// oneVM gives the vCPUs and the memory of all VMs to one, because programs without MPI run in a single VM.
func oneVM(c *spec.Cluster) {
	if len(c.VMs) == 0 {
		return
	}
	g := c.VMs[0]
	cpus, memory := 0, spec.Size(0)
	for _, o := range c.VMs {
		cpus += o.VCPUs * o.Count
		memory += o.Memory * spec.Size(o.Count)
	}
	g.Count, g.VCPUs, g.Memory = 1, cpus, memory
	c.VMs = []spec.Group{g}
}

// lives reports whether no VM has been lost.
func (m *vms) lives() bool {
	select {
	case <-m.c.Lost():
		return false
	case <-m.c.Died():
		return false
	default:
		return true
	}
}

func (m *vms) pause() error {
	if m.c == nil || m.paused {
		return nil
	}
	if err := m.c.Pause(); err != nil {
		return fmt.Errorf("a native program is to run alone: %w", err)
	}
	m.paused = true
	return nil
}

func (m *vms) resume() error {
	if !m.paused {
		return nil
	}
	if err := m.c.Resume(); err != nil {
		return err
	}
	m.paused = false
	return nil
}

// down ends the VMs that are up.
func (m *vms) down() {
	if m.c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := m.resume(); err != nil {
		cancel() // a VM that cannot continue is killed
	}
	if err := m.c.Down(ctx); err != nil {
		m.notice(err.Error())
	}
	m.c, m.key, m.paused = nil, "", false
}

// run runs an invocation in the VMs that are up.
func (m *vms) run(ctx context.Context, x *experiment, v *Variant, c invocation) (process.Result, error) {
	rec := m.c.Record()
	if x.def.Launch == "mpi" {
		env, here, err := job.LauncherHere(&rec, v.MPI.Launcher, c.env)
		if err != nil {
			return process.Result{}, err
		}
		if here {
			return process.Run(ctx, process.Command{Args: c.words, Env: env, Dir: c.dir, Timeout: c.timeout})
		}
	}
	first := rec.VMs[0].Name
	if x.def.Launch == suite.LaunchPair {
		return m.pair(ctx, &rec, c)
	}
	return m.inside(ctx, &rec, first, c)
}

// pair runs a command in a VM of one host as the server, and in one of another host as the client, whose result it
// returns. The server exits when the client has finished, or is killed if the client has failed.
func (m *vms) pair(ctx context.Context, rec *state.Record, c invocation) (process.Result, error) {
	if len(rec.Remote) < 2 || len(rec.Remote[0].VMs) == 0 || len(rec.Remote[1].VMs) == 0 {
		return process.Result{}, errors.New("its server and its client need a VM each on two hosts")
	}
	server, client := rec.Remote[0].VMs[0], rec.Remote[1].VMs[0]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	as := func(vm, number string) (process.Result, error) {
		own := c
		own.env = append(slices.Clone(c.env), "SLURM_PROCID="+number, "PAIR_SERVER="+server)
		return m.inside(ctx, rec, vm, own)
	}
	type end struct {
		r   process.Result
		err error
	}
	served := make(chan end, 1)
	go func() {
		r, err := as(server, "0")
		served <- end{r, err}
	}()
	r, err := as(client, "1")
	if err != nil || r.Status != "" {
		cancel()
	}
	s := <-served
	r.Err = append(append([]byte(nil), s.r.Err...), r.Err...)
	switch {
	case err != nil || r.Status != "":
	case s.err != nil:
		return r, fmt.Errorf("its server in %s: %w", server, s.err)
	case s.r.Status != "":
		r.Status, r.TimedOut = "its server in "+server+": "+s.r.Status, s.r.TimedOut
	}
	return r, err
}

// inside runs a command in a VM.
func (m *vms) inside(ctx context.Context, rec *state.Record, vm string, c invocation) (process.Result, error) {
	var r process.Result
	limit, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	out, text := process.Limited()
	errs, errText := process.Limited()
	begin := time.Now()
	st, err := job.InVM(limit, rec, vm, c.words, filepath.Clean(c.dir), c.env, session.Streams{Out: out, Err: errs})
	r.Seconds, r.Out, r.Err = time.Since(begin).Seconds(), text(), errText()
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(limit.Err(), context.DeadlineExceeded):
		r.TimedOut = true
		r.Status = fmt.Sprintf("killed after %v, which is this experiment's bound", c.timeout)
		return r, nil
	case err != nil:
		return r, err
	case st.ExitCode() != 0:
		r.Status = st.String()
	}
	return r, nil
}
