package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/cluster"
	"nearmetal/internal/spec"
)

// boot measures two VMs from nothing to ready, A (bare QEMU) and B (nearmetal) in turn, so
// that a change of the machine's load meets both.
func boot(ctx context.Context, s settings, caps qemu.Caps, r *report) error {
	mem, err := spec.ParseSize(s.memory)
	if err != nil {
		return err
	}
	b, err := newBench(caps, int(mem>>20))
	if err != nil {
		return err
	}
	defer b.image.Close()
	var bare, bareCPU []time.Duration
	ours := map[string][]time.Duration{}
	for i := 0; i < s.n; i++ {
		a, cpu, err := func() (time.Duration, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			return b.bare(ctx)
		}()
		if err != nil {
			return err
		}
		bare, bareCPU = append(bare, a), append(bareCPU, cpu)
		one, err := b.nearmetal(ctx, s, mem, r)
		if err != nil {
			return err
		}
		for k, v := range one {
			ours[k] = append(ours[k], v)
		}
		say("boot %d of %d: bare %.2f s, nearmetal %.2f s", i+1, s.n, a.Seconds(), one["ready"].Seconds())
	}
	r.add(summary("A: two bare QEMUs to ready", "s", seconds(bare)))
	r.add(summary("A: CPU time of both QEMUs until then", "s", seconds(bareCPU)))
	for _, p := range parts {
		x := summary("B: "+p.what, "s", seconds(ours[p.key]))
		x.Guest = p.guest
		r.add(x)
	}
	x := ratio("B/A to ready (of medians; min and max of pairs)", ours["ready"], bare)
	x.Bar = 1.15
	r.add(x)
	// On a machine that others use, this says more: it hardly depends on them.
	r.add(ratio("B/A of CPU time", ours["cpu"], bareCPU))
	return nil
}

// ratio compares pairs.
func ratio(name string, ours, bare []time.Duration) result {
	var r []float64
	for i := range ours {
		r = append(r, ours[i].Seconds()/bare[i].Seconds())
	}
	x := summary(name, "", r)
	x.Median = summary("", "", seconds(ours)).Median / summary("", "", seconds(bare)).Median
	return x
}

// parts are the phases of B in the order of the table.
var parts = []struct {
	key, what string
	guest     bool
}{
	{"prepare", "prepared (plan, files, network, region)", false},
	{"qemu", "QEMU started (its monitor answers)", false},
	{"init", "in the guest: kernel, until init", true},
	{"root", "in the guest: modules and root", true},
	{"agent", "in the guest: shares, network, region, until ready", true},
	{"ready", "two VMs to ready, in all", false},
	{"cpu", "CPU time of both QEMUs until then", false},
	{"exec", "first exec of true, from ready", true},
	{"rank", "first rank of mpirun -n 2, from ready", true},
	{"down", "down", false},
}

// nearmetal starts a cluster of two VMs at defaults in this process, and returns how long its
// phases take. Those of two VMs count by the slower one.
func (b *bench) nearmetal(ctx context.Context, s settings, mem spec.Size, r *report) (map[string]time.Duration, error) {
	c := &spec.Cluster{VMs: []spec.Group{{Count: 2, Memory: mem}}}
	spec.Defaults(c)
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if share, ok := spec.DefaultShare(cwd); ok {
		c.Shares = []spec.Share{share}
	}
	c.Resolve(cwd)
	c.RootWrites = true
	start := time.Now()
	cl, err := cluster.Up(ctx, cluster.Start{Spec: c, Command: "bench-boot"}, cluster.Events{})
	if err != nil {
		return nil, err
	}
	d := map[string]time.Duration{"ready": time.Since(start)}
	for _, v := range cl.Record().VMs {
		d["cpu"] += cpuTime(v.PID)
	}
	r.Accel = cl.Record().Accel
	for _, t := range cl.Timings() {
		d["prepare"] = max(d["prepare"], t.Prepare)
		d["qemu"] = max(d["qemu"], t.Started)
		at := map[string]time.Duration{}
		for _, p := range t.Phases {
			at[p.Name] = p.At
		}
		d["init"] = max(d["init"], at["init"])
		d["root"] = max(d["root"], at["root"]-at["init"])
		d["agent"] = max(d["agent"], at["ready"]-at["root"])
	}
	err = func() (err error) {
		if d["exec"], err = firstOutput(exec.CommandContext(ctx, s.program, "exec", "-c", cl.Name(), "echo", "up")); err != nil {
			return err
		}
		// The launcher starts over: its time is its own, from the moment the VMs stood ready.
		d["rank"], err = b.firstRank(ctx, s, cl.Name())
		return err
	}()
	start = time.Now()
	if e := cl.Down(context.Background()); err == nil {
		err = e
	}
	d["down"] = time.Since(start)
	return d, err
}

// firstRank runs an MPI launcher of the host in the cluster's environment.
func (b *bench) firstRank(ctx context.Context, s settings, name string) (time.Duration, error) {
	vars, err := exec.CommandContext(ctx, s.program, "env", name).Output()
	if err != nil {
		return 0, fmt.Errorf("nearmetal env: %w", err)
	}
	return firstOutput(exec.CommandContext(ctx, "/bin/sh", "-c", string(vars)+
		"\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\nexec mpirun -n 2 echo up"))
}

// firstOutput returns how long it takes until a program writes its first line. It waits for
// its end.
func firstOutput(cmd *exec.Cmd) (time.Duration, error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	rd := bufio.NewReader(out)
	_, err = rd.ReadString('\n')
	d := time.Since(start)
	io.Copy(io.Discard, rd)
	if e := cmd.Wait(); e != nil {
		err = e
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:2], " "), err, errs.String())
	}
	return d, nil
}
