package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"nearmetal/internal/backend"
)

// Name returns the name of the VM.
func (v *VM) Name() string { return v.name }

// PID returns the PID of the QEMU process.
func (v *VM) PID() int { return v.child.cmd.Process.Pid }

// Started returns the start time of the QEMU process.
func (v *VM) Started() time.Time { return v.started }

// Done is closed when the process has ended and is reaped.
func (v *VM) Done() <-chan struct{} { return v.done }

// Err returns nil while the VM runs, and if it powered off or was ended by Kill or Quit; else the cause of its end.
func (v *VM) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// verdict returns the cause of the process's end. v.mu is held.
func (v *VM) verdict() error {
	said := complaint(v.path, v.child.stderr.String())
	sig := v.child.signalled()
	switch {
	case v.ended:
		return nil
	case v.lost != nil:
		return v.lost
	case sig == syscall.SIGKILL:
		return errors.New("QEMU was killed (signal 9): by hand, or by the kernel, which was out of memory")
	case sig == syscall.SIGBUS:
		return errors.New("QEMU ended with a bus error (signal 7): /dev/shm or the huge pages behind the VM's memory ran out")
	case sig == syscall.SIGSYS:
		return errors.New("QEMU ended with a system call that its sandbox forbids (signal 31)")
	case sig != 0 && said != "":
		return fmt.Errorf("QEMU failed: %s (signal %d, %s)", said, int(sig), sig)
	case sig != 0:
		return fmt.Errorf("QEMU was %s", v.child.state())
	case v.child.err != nil && said != "":
		return fmt.Errorf("QEMU failed: %s", said)
	case v.child.err != nil:
		return fmt.Errorf("QEMU failed: %s", v.child.state())
	case v.why == "guest-reset" || v.why == "guest-panic":
		return backend.ErrReset
	}
	return nil
}

// shutdownReason parses a SHUTDOWN event's arguments.
func shutdownReason(data json.RawMessage) string {
	var d struct {
		Reason string `json:"reason"`
	}
	json.Unmarshal(data, &d)
	return oneLine(d.Reason)
}

// end marks the VM's end as intended.
func (v *VM) end() {
	v.mu.Lock()
	v.ended = true
	v.mu.Unlock()
}

// Kill ends the process at once and waits until it is reaped.
func (v *VM) Kill() {
	v.end()
	v.child.kill()
	<-v.done
}

// Quit asks QEMU to exit, and kills it if ctx is done first. It waits until the process is reaped. It returns ctx's
// error if QEMU had to be killed.
func (v *VM) Quit(ctx context.Context) error {
	v.end()
	v.qmp.Execute(ctx, "quit", nil, nil) // it may be gone before it answers
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		v.Kill()
		return ctx.Err()
	}
}

// QMP returns the VM's monitor. Its Events are read by the VM itself: do not read them.
func (v *VM) QMP() *QMP { return v.qmp }

// LastLines returns the last n lines of the console, control characters made harmless.
func (v *VM) LastLines(n int) []string { return v.console.LastLines(n) }

// AwaitConsole waits until the console has printed text. It fails if the VM ends or ctx is done first.
func (v *VM) AwaitConsole(ctx context.Context, text string) error {
	return v.console.Await(ctx, text)
}
