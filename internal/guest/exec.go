package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"syscall"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// Exec is a program to run in a VM.
type Exec struct {
	VM   string   // "" for the client's own
	Args []string // Args[0] is searched in Env's PATH if it has no slash
	Env  []string // KEY=value, the whole environment
	// Dir is the working directory. With DirOptional, / is used if Dir does not exist in the VM.
	Dir         string
	DirOptional bool
	UID, GID    uint32
	Groups      []uint32 // supplementary
	// TTY runs the program on a terminal of Rows by Cols as its standard streams; all output is then on Stdout.
	TTY        bool
	Rows, Cols uint16
	NoStdin    bool // standard input is /dev/null
	Umask      *uint32
	Rlimits    []Rlimit
	CPUs       []int // CPUs of the VM on which the program may run; none: all
	// Connect is "NAME ADDR": the program inherits a TCP connection to an address as seen from the VM, and the
	// variable NAME has its descriptor; "": none.
	Connect string
	// HostPorts are TCP ports of the cluster's host to which programs in the VM may connect from now on, while the
	// programs that currently listen on them live. With HostPortsOptional it is not an error if none listens.
	HostPorts         []uint16
	HostPortsOptional bool
	// AskWritten requests Status.NothingWritten. The status is then sent only when the output has ended.
	AskWritten bool
}

// KeyHostPort is the header field of Exec.HostPorts. The cluster's owner handles it and does not pass it on.
// "optional" may follow the number.
const KeyHostPort = "host-port"

// Unlimited is the value of a Rlimit without a limit.
const Unlimited = ^uint64(0)

// Rlimit is one resource limit. Name is setrlimit(2)'s in lower case: as, core, cpu, data, fsize, memlock, nofile,
// nproc, rss, rtprio, nice, sigpending, msgqueue, stack.
type Rlimit struct {
	Name       string
	Soft, Hard uint64 // in the limit's own unit, or Unlimited
}

// Status is how a program ended.
type Status struct {
	Code   int            // exit code; 127: program not found, 126: it cannot be run
	Signal syscall.Signal // that killed it, or 0
	// Message states, in one line, why the program could not be started.
	Message string
	// NothingWritten: the agent saw, as requested by Exec.AskWritten, that since the program's start no file was
	// written outside the shares. False: some may have been written, see Client.Written.
	NothingWritten bool
	// OutOfMemory: while the program ran, the VM's kernel killed a process because memory ran out.
	OutOfMemory bool
}

// String returns the status in a shell's words.
func (s Status) String() string {
	switch {
	case s.Message != "":
		return s.Message
	case s.Signal != 0:
		return "killed by signal " + strconv.Itoa(int(s.Signal))
	}
	return "exit status " + strconv.Itoa(s.Code)
}

// ExitCode returns Code, or 128 plus the signal's number.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// Process is a program in a VM.
type Process struct {
	Stdin  io.WriteCloser // Close sends end of file to the program
	Stdout io.Reader      // must be read, or the program blocks
	Stderr io.Reader      // likewise; at its end at once with a TTY

	s    *channel.Stream
	done chan struct{}

	mu     sync.Mutex
	pid    int
	status Status
	err    error
}

// header returns the header of the stream that runs e.
func (e *Exec) header() (channel.Fields, error) {
	if len(e.Args) == 0 || e.Args[0] == "" {
		return nil, errors.New("no program is named")
	}
	var h channel.Fields
	for _, a := range e.Args {
		h.Add("arg", a)
	}
	for _, v := range e.Env {
		h.Add("env", v)
	}
	if e.Dir != "" {
		h.Add("dir", e.Dir)
		if e.DirOptional {
			h.Add("dir-optional", "1")
		}
	}
	h = append(h, identity(e.UID, e.GID, e.Groups)...)
	if e.TTY {
		h.Add("tty", "1")
		h.Add("size", fmt.Sprintf("%d %d", e.Rows, e.Cols))
	}
	if e.NoStdin {
		h.Add("no-stdin", "1")
	}
	if e.Umask != nil {
		h.Add("umask", strconv.FormatUint(uint64(*e.Umask&0o777), 8))
	}
	for _, r := range e.Rlimits {
		h.Add("rlimit", r.text())
	}
	if e.Connect != "" {
		h.Add("connect", e.Connect)
	}
	if e.AskWritten {
		h.Add("written", "1")
	}
	for _, n := range e.CPUs {
		h.AddInt("cpu", int64(n))
	}
	for _, p := range e.HostPorts {
		text := strconv.Itoa(int(p))
		if e.HostPortsOptional {
			text += " optional"
		}
		h.Add(KeyHostPort, text)
	}
	return h, nil
}

// identity returns the fields with the user and groups as whom the agent works.
func identity(uid, gid uint32, groups []uint32) channel.Fields {
	var h channel.Fields
	h.AddInt("uid", int64(uid))
	h.AddInt("gid", int64(gid))
	for _, g := range groups {
		h.AddInt("group", int64(g))
	}
	return h
}

// text returns the limit as the value of a field.
func (r Rlimit) text() string { return r.Name + " " + limitText(r.Soft) + " " + limitText(r.Hard) }

func limitText(n uint64) string {
	if n == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// Start runs a program. It returns before the program has started: a program that cannot be started ends with Code
// 126 or 127 and a Message. When the Process is closed, its client dies or the Mux ends, the agent kills the program
// and everything it has started.
func (c *Client) Start(e Exec) (*Process, error) {
	h, err := e.header()
	if err != nil {
		return nil, err
	}
	s, err := c.open("exec", e.VM, h)
	if err != nil {
		return nil, err
	}
	p := &Process{
		Stdin: s.Lane(channel.LaneData), Stdout: s.Lane(channel.LaneData), Stderr: s.Lane(channel.LaneError),
		s: s, done: make(chan struct{}),
	}
	go p.follow()
	return p, nil
}

// follow receives the agent's messages until one reports how the program ended.
func (p *Process) follow() {
	defer close(p.done)
	for {
		f, err := p.s.Receive(context.Background())
		p.mu.Lock()
		p.status.NothingWritten, p.status.OutOfMemory = f.Get("written") == "0", f.Get("oom") != ""
		switch {
		case err == io.EOF:
			p.err = errors.New("the agent ended the program without a status")
		case err != nil:
			p.err = err
		case f.Get("pid") != "":
			n, _ := f.Uint("pid", 1<<30)
			p.pid = int(n)
			p.mu.Unlock()
			continue
		case f.Get("signal") != "":
			n, err := f.Uint("signal", 64)
			p.status.Signal, p.err = syscall.Signal(n), err
		case f.Get("exit") != "":
			n, err := f.Uint("exit", 255)
			p.status.Code, p.err = int(n), err
			p.status.Message = text.CleanLines(f.Get("error"))
		default:
			p.mu.Unlock()
			continue
		}
		p.mu.Unlock()
		return
	}
}

// Wait waits until the program has ended. Its output may not have arrived yet: read Stdout and Stderr to their ends,
// then Close. An error means a lost VM or a refusal; a failed program is a Status.
func (p *Process) Wait() (Status, error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.err
}

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID returns the program's PID in the VM, 0 while it is not known.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Signal sends a signal to the program's process group; with a TTY to the
// terminal's foreground group.
func (p *Process) Signal(s syscall.Signal) error {
	return p.s.Send(channel.Fields{{Key: "signal", Value: strconv.Itoa(int(s))}})
}

// Resize passes on the size of the terminal; the foreground group gets SIGWINCH.
func (p *Process) Resize(rows, cols uint16) error {
	return p.s.Send(channel.Fields{{Key: "size", Value: fmt.Sprintf("%d %d", rows, cols)}})
}

// Close releases the program. If it still runs, it is killed with all processes that it has started: SIGHUP and
// SIGTERM, then SIGKILL.
func (p *Process) Close() error {
	p.s.Close()
	<-p.done
	return nil
}
