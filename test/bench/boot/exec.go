package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/cluster/state"
)

// loops is how many times a guest runs a program to time it.
const loops = 20

// up starts a cluster under a supervisor; down ends it.
func up(ctx context.Context, s settings, args ...string) (r *state.Record, down func() error, err error) {
	say("starting a cluster: up %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, s.program, append([]string{"up", "--quiet", "--no-share"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("up: %w", err)
	}
	name := strings.TrimSpace(string(out))
	down = func() error { return exec.Command(s.program, "down", "--quiet", name).Run() }
	if r, err = state.Find(name); err != nil {
		down()
	}
	return r, down, err
}

// execs measures what nearmetal exec adds to a program, and how it carries bytes.
func execs(ctx context.Context, s settings, r *report) error {
	rec, down, err := up(ctx, s, "--memory", s.memory)
	if err != nil {
		return err
	}
	defer down()
	r.Accel = rec.Accel
	in := func(script string) (string, error) {
		out, err := exec.CommandContext(ctx, s.program, "exec", "-c", rec.Name, "sh", "-c", script).Output()
		return strings.TrimSpace(string(out)), err
	}
	var there, here []float64
	script := fmt.Sprintf("b=$(date +%%s%%N); i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done; e=$(date +%%s%%N); echo $(((e-b)/%d))", loops, loops)
	for i := 0; i <= 2*s.n; i++ {
		out, err := in(script)
		if err != nil {
			return err
		}
		ns, err := strconv.ParseFloat(out, 64)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := exec.CommandContext(ctx, s.program, "exec", "-c", rec.Name, "/bin/true").Run(); err != nil {
			return err
		}
		if i > 0 { // the first ones fill caches
			there = append(there, ns/1e6)
			here = append(here, time.Since(start).Seconds()*1e3)
		}
	}
	a, b := summary("true in the VM", "ms", there), summary("nearmetal exec true", "ms", here)
	a.Guest, b.Guest = true, true
	r.add(a)
	r.add(b)
	r.add(result{Name: "exec true beyond true itself (of medians)", Unit: "ms", Guest: true, Bar: 60,
		Median: b.Median - a.Median, Min: b.Min - a.Min, Max: b.Max - a.Max})
	return stream(ctx, s, r, rec, in)
}

// stream sends bytes through cat in a VM and back.
func stream(ctx context.Context, s settings, r *report, rec *state.Record, in func(string) (string, error)) error {
	say("%d MiB through exec cat", s.stream>>20)
	agent := func() (float64, error) {
		out, err := in("sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/1/status")
		if err != nil {
			return 0, err
		}
		kb, err := strconv.ParseFloat(out, 64)
		return kb / 1024, err
	}
	agentBefore, err := agent()
	if err != nil {
		return err
	}
	ownerBefore := peak(rec.Owner)
	cmd := exec.CommandContext(ctx, s.program, "exec", "-c", rec.Name, "cat")
	sent, got := sha256.New(), sha256.New()
	seed := [32]byte{1}
	source := io.LimitReader(rand.NewChaCha8(seed), s.stream)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	counted := &counter{w: got}
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = counted, &errs
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	var early, late float64 // the client's peak after a sixteenth, and before the end
	counted.at = func(n int64) {
		if early == 0 && n > s.stream/16 {
			early = peak(cmd.Process.Pid)
		}
		if n > s.stream-1<<20 || late == 0 {
			late = max(late, peak(cmd.Process.Pid))
		}
	}
	go func() {
		io.Copy(io.MultiWriter(stdin, sent), source)
		stdin.Close()
	}()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("exec cat: %w: %s", err, errs.String())
	}
	took := time.Since(start)
	if counted.n != s.stream || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		return fmt.Errorf("exec cat: %d of %d bytes came back, or not the same ones", counted.n, s.stream)
	}
	agentAfter, err := agent()
	if err != nil {
		return err
	}
	x := summary(fmt.Sprintf("%d MiB through exec cat, SHA-256 equal", s.stream>>20), "MB/s", []float64{float64(s.stream) / 1e6 / took.Seconds()})
	x.Guest = true
	r.add(x)
	for _, g := range []struct {
		who           string
		before, after float64
	}{{"the client's (from a sixteenth on)", early, late}, {"the owner's", ownerBefore, peak(rec.Owner)}, {"the agent's", agentBefore, agentAfter}} {
		r.add(summary("  "+g.who+" peak memory after it", "MiB", []float64{g.after}))
		grown := summary("  "+g.who+" growth by it", "MiB", []float64{g.after - g.before})
		grown.Bar = 16 // flat: queues and the collector's slack, nothing of the order of the stream
		r.add(grown)
	}
	return nil
}

// counter counts what passes.
type counter struct {
	w  io.Writer
	n  int64
	at func(n int64)
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	c.at(c.n)
	return c.w.Write(b)
}
