// Package process runs a benchmark's program: bounded in time and output, on given CPUs, and ended with all processes
// that it started.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// MaxOutput is the number of bytes that are kept of each of a program's outputs; the rest is dropped.
const MaxOutput = 16 << 20

// Command is a program to run.
type Command struct {
	Args    []string
	Env     []string // NAME=value; of two values for a name the last counts
	Dir     string
	CPUs    []int // CPUs that it and its children may use; none: all that the caller may
	Timeout time.Duration
}

// Result is how a program ended.
type Result struct {
	Out, Err []byte  // its output
	Cut      bool    // it printed more than MaxOutput
	Seconds  float64 // wall clock from its start to its end
	Status   string  // how it failed: "exit status 3", "killed after 10m0s"
	TimedOut bool
}

// Run runs a command in a session of its own and waits for its end. When the command has ended, ctx ends or the time
// is over, all processes of that session are killed. The error is one of starting it, or ctx's.
func Run(ctx context.Context, c Command) (Result, error) {
	var out, errs limited
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 2 * time.Second // for outputs that another process still has open
	var r Result
	ended := make(chan error, 1)
	started := make(chan error, 1)
	var begin time.Time
	go func() {
		// The child inherits the thread's CPUs, and PDEATHSIG requires a thread that lives on.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		restore, err := confine(c.CPUs)
		begin = time.Now()
		if err == nil {
			err = cmd.Start()
		}
		restore()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return r, fmt.Errorf("cannot start %s: %w", c.Args[0], err)
	}
	session := cmd.Process.Pid
	var over <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		over = t.C
	}
	var err error
	select {
	case err = <-ended:
	case <-over:
		r.TimedOut = true
		KillSession(session)
		<-ended
	case <-ctx.Done():
		KillSession(session)
		<-ended
		err = ctx.Err()
	}
	r.Seconds = time.Since(begin).Seconds()
	KillSession(session) // remaining processes would disturb the next repetition
	r.Out, r.Err, r.Cut = out.kept.Bytes(), errs.kept.Bytes(), out.cut || errs.cut
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if r.TimedOut {
		r.Status = fmt.Sprintf("killed after %v, which is this experiment's bound", c.Timeout)
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		r.Status = err.Error()
	}
	return r, nil
}

// confine puts the calling thread onto CPUs and returns a function that reverts it.
func confine(cpus []int) (func(), error) {
	if len(cpus) == 0 {
		return func() {}, nil
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return func() {}, err
	}
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return func() {}, fmt.Errorf("CPUs %v: %w", cpus, err)
	}
	return func() { unix.SchedSetaffinity(0, &before) }, nil
}

// limited keeps the first MaxOutput bytes written to it.
type limited struct {
	kept bytes.Buffer
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	if room := MaxOutput - l.kept.Len(); room < len(p) {
		l.cut = true
		l.kept.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return l.kept.Write(p)
}

// Limited returns a writer that keeps the written bytes, up to MaxOutput, and a function that returns them.
func Limited() (w io.Writer, text func() []byte) {
	l := &limited{}
	return l, l.kept.Bytes
}
