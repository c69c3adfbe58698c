package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/process"
	"nearmetal/internal/sockpair"
)

// script runs the VM's process: descriptor 3 is its channel, 4 the agent's program, 5 signals when to begin (end of
// file: not at all). The agent's /run is not this host's.
const script = `read go <&5 || exit 1
exec 5<&-
mount -t tmpfs run /run && mkdir /run/nearmetal || exit 1
echo "fake VM $1 is up" >&2
[ "$2" = mute ] && exec sleep 1000000
exec /proc/self/fd/4 --serve 3 --no-init --name "$1" --socket /run/nearmetal/agent.sock`

// instance is a VM that this process has started.
type instance struct {
	d    *driver
	ref  backend.Ref
	path string // of its file
	log  string // of its console

	cmd     *exec.Cmd
	channel net.Conn

	mu     sync.Mutex
	handed bool // the caller owns the channel
	killed bool
	done   chan struct{}
	err    error // valid when done is closed
}

// start starts the process, writes its PID into the VM's file, and lets it begin.
func (i *instance) start(name string) error {
	agent, err := agentFile()
	if err != nil {
		return err
	}
	ours, theirs, err := sockpair.Conn("channel")
	if err != nil {
		return err
	}
	defer theirs.Close()
	begin, told, err := os.Pipe()
	if err != nil {
		ours.Close()
		return err
	}
	defer begin.Close()
	defer told.Close()
	out, err := i.console()
	if err != nil {
		ours.Close()
		return err
	}
	defer out.Close()
	args := []string{"--mount", "sh", "-c", script, "sh", name, ""}
	if i.d.o.Mute == name {
		args[len(args)-1] = "mute"
	}
	i.cmd = exec.Command("unshare", args...)
	i.cmd.ExtraFiles = []*os.File{theirs, agent, begin}
	i.cmd.Stderr = out
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !i.d.o.Survives {
		i.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := i.spawn(); err != nil {
		ours.Close()
		return err
	}
	i.channel = ours
	start, err := process.Start(i.cmd.Process.Pid)
	if err == nil {
		var text []byte
		text, err = json.Marshal(object{i.cmd.Process.Pid, start})
		if err == nil {
			err = os.WriteFile(i.path, text, 0o600)
		}
	}
	if err == nil {
		_, err = io.WriteString(told, "go\n")
	}
	if err != nil {
		i.Kill(context.Background())
	}
	return err
}

// spawn starts the process on a thread that lives as long as the process, because PDEATHSIG is sent when the thread
// ends.
func (i *instance) spawn() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := i.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = i.cmd.Wait()
		i.mu.Lock()
		if !i.killed && err != nil {
			i.err = fmt.Errorf("its process ended: %w", err)
		}
		i.mu.Unlock()
		close(i.done)
	}()
	return <-started
}

// console opens the file of the console.
func (i *instance) console() (*os.File, error) {
	if i.log == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return os.OpenFile(i.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func (i *instance) Ref() backend.Ref { return i.ref }

func (i *instance) PID() int {
	if i.cmd == nil {
		return 0
	}
	return i.cmd.Process.Pid
}

func (i *instance) Agent(context.Context) (io.ReadWriteCloser, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.channel == nil {
		return nil, errors.New("its owner is gone")
	}
	i.handed = true
	return i.channel, nil
}

// Pause returns when the agent has stopped.
func (i *instance) Pause(context.Context) error {
	if err := i.signal(unix.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, i.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func (i *instance) Resume(context.Context) error { return i.signal(unix.SIGCONT) }

// signal sends a signal to all processes of the VM.
func (i *instance) signal(s unix.Signal) error {
	if i.PID() == 0 {
		return errors.New("its owner is gone")
	}
	return unix.Kill(-i.PID(), s)
}

// Kill ends the process and removes the VM's file.
func (i *instance) Kill(context.Context) error {
	if err := i.d.denied(); err != nil {
		return err
	}
	i.mu.Lock()
	i.killed = true
	handed := i.handed
	i.mu.Unlock()
	select {
	case <-i.done: // its PID may be another process's by now
	default:
		i.signal(unix.SIGKILL)
		<-i.done
	}
	if !handed && i.channel != nil {
		i.channel.Close()
	}
	if err := os.Remove(i.path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

func (i *instance) Console(n int) []string {
	text, err := os.ReadFile(i.log)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return lines[max(0, len(lines)-n):]
}
