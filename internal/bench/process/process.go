// Package process runs a benchmark's program: bounded in time and output, on given CPUs, and
// ended with all that it started.
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

// MaxOutput is what is kept of each of a program's outputs, in bytes; the rest is dropped.
const MaxOutput = 16 << 20

// Command is a program to run.
type Command struct {
	Args    []string
	Env     []string // NAME=value; of two of a name, the last counts
	Dir     string
	CPUs    []int // that it and its children may use; none: all that the caller may
	Timeout time.Duration
}

// Result is how a program ended.
type Result struct {
	Out, Err []byte  // what it printed
	Cut      bool    // it printed more than MaxOutput
	Seconds  float64 // wall clock from its start to its end
	Status   string  // how it ended if it was not well: "exit status 3", "killed after 10m0s"
	TimedOut bool
}

// Run runs a command in a session of its own and waits for its end. When ctx ends or the
// time is over, and also when it is done, all processes of that session are killed. The
// error is one of starting it, or ctx's.
func Run(ctx context.Context, c Command) (Result, error) {
	var out, errs limited
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 2 * time.Second // for outputs that something else still holds open
	var r Result
	ended := make(chan error, 1)
	started := make(chan error, 1)
	var begin time.Time
	go func() {
		// The thread's CPUs are its child's; and PDEATHSIG asks for a thread that lives on.
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
	KillSession(session) // what it left behind would disturb the next repetition
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

// confine puts the calling thread onto CPUs and returns what takes that back.
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

// Limited returns a writer that keeps what is written to it, up to MaxOutput, and how to read it.
func Limited() (w io.Writer, text func() []byte) {
	l := &limited{}
	return l, l.kept.Bytes
}
