package fleet

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	osuser "os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host"
	"nearmetal/internal/linejson"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
)

const (
	// leadEvery is the interval of the front's heartbeats.
	leadEvery = 5 * time.Second
	// leadBound is how long a part waits for a heartbeat: a failed network alone does not end a connection.
	leadBound = 2 * time.Minute
	// joinBound is the time in which the VMs of all hosts must reach each other, once they are ready.
	joinBound = 2 * time.Minute
)

// Part is a cluster on this host that is a part of one over several hosts.
type Part interface {
	// Owned returns this process's handle of the cluster, and Board the switchboard that passes streams to its VMs.
	Owned() *state.Owned
	Board() *channel.Switchboard
	// Lost receives an error for each VM that ends unexpectedly; Asked is closed when a client asks for the part's
	// end.
	Lost() <-chan error
	Asked() <-chan struct{}
	// Down ends the part with the help of its VMs' agents, and Kill without.
	Down(ctx context.Context) error
	Kill(ctx context.Context) error
}

// Starter starts a part and waits until its VMs are ready. answer makes the part listen on a launcher's port of the
// front.
type Starter func(ctx context.Context, s start.Request, ev start.Events, answer func(port uint16) error) (Part, error)

// HostPart runs the part on this host of a cluster over several hosts; up starts its VMs. It communicates with the
// front over in and out, and returns when nothing of the part is left. Errors have been reported to the front.
func HostPart(in io.Reader, out io.Writer, up Starter) error {
	// The request contains the secret that joins the hosts. With dumpable off, no other process of the user, and no
	// guest through the host's /proc, can read this process's memory and files.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
	r := bufio.NewReaderSize(in, 64<<10)
	var ask hostAsk
	if err := linejson.Read(r, &ask); err != nil || ask.Spec == nil {
		return errors.New("host-part: this command is only for nearmetal run and up with --hosts")
	}
	swept, sweepErr := state.Sweep() // an error does not keep this part from starting
	if sweepErr != nil {
		swept = append(swept, strings.Split(sweepErr.Error(), "\n")...)
	}
	ledger, err := state.Ledger()
	var facts *hostFacts
	if err == nil {
		facts, err = factsOf(ask)
	}
	if err != nil {
		return linejson.Write(out, hostFacts{Protocol: hostProtocol, Error: terminal.PlainError(err)})
	}
	facts.Ledger, facts.Swept = ledger, swept
	if err := linejson.Write(out, facts); err != nil {
		return err
	}
	var start start.Request
	if err := linejson.Read(r, &start); err != nil || start.Spec == nil || start.Plan == nil {
		return nil // the front needs no VMs here, or has disconnected
	}
	p := &part{in: r, out: out, start: start, answers: newAnswering()}
	return p.run(up)
}

// factsOf returns the facts about this host that the front plans with.
func factsOf(ask hostAsk) (*hostFacts, error) {
	f := &hostFacts{Protocol: hostProtocol}
	var err error
	if f.Machine, err = machineID(); err != nil {
		return nil, err
	}
	// SSH_CONNECTION: the client's address and port, then this host's (ssh(1)).
	if w := strings.Fields(os.Getenv("SSH_CONNECTION")); len(w) == 4 {
		f.Addr = w[2]
	}
	f.User = thisCaller()
	accel, notice, err := host.DetectAccel(ask.Spec.Accel)
	if err != nil {
		return nil, err
	}
	f.Accel, f.Notice = string(accel), notice
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := topology.Gather("/", z, "host"); err != nil {
		return nil, err
	}
	z.Close()
	f.Topology = b.Bytes()
	f.Taken, err = claim.FindTaken(ask.Spec)
	return f, err
}

// thisCaller returns the user who runs this process.
func thisCaller() state.Caller {
	k := state.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Home: os.Getenv("HOME")}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		k.Groups = append(k.Groups, uint32(g))
	}
	if u, err := osuser.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		k.Name = u.Username
	}
	return k
}

// machineID returns an ID of this host's boot and this process's network namespace, so that two names of one host
// have the same ID.
func machineID() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	net, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + " " + net, nil
}

// part is a host's part of a cluster.
type part struct {
	in    *bufio.Reader
	outMu sync.Mutex
	out   io.Writer
	start start.Request
	conn  *partConn
	// answers are the ports of the front's launchers on which this part listens.
	answers *answering
}

// say writes a line to the front, before the connection becomes a channel.
func (p *part) say(m any) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	linejson.Write(p.out, m)
}

// run starts the part, serves it, and ends it.
func (p *part) run(up Starter) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM, unix.SIGINT)
	p.conn = newPartConn(p.in, p.out)
	go func() {
		select {
		case <-p.conn.ended:
			cancel(errors.New("the front has gone"))
		case s := <-asked:
			cancel(fmt.Errorf("the part on this host was asked to end: %v", s))
		case <-ctx.Done():
		}
	}()
	ev := start.Report(func(m start.Progress) { p.say(message{Progress: m}) })
	c, err := up(ctx, p.start, ev, p.answers.listen)
	if err == nil {
		if err = p.ready(ctx, c.Owned()); err != nil {
			c.Kill(ctx)
		}
	}
	if err != nil {
		p.say(message{Progress: start.Failed(err)})
		return nil
	}
	return p.serve(ctx, c)
}

// ready waits until the other hosts' VMs are reachable, and reports those of this host.
func (p *part) ready(ctx context.Context, own *state.Owned) error {
	var ready hostReady
	if p.start.Overlay != nil {
		joining, cancel := context.WithTimeout(ctx, joinBound)
		defer cancel()
		if r, err := own.Await(joining, func(r *state.Record) bool { return r.Joined() == nil }); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("%w (TCP ports %d-%d of the hosts must be open to each other)", r.Joined(), DefaultPorts[0], DefaultPorts[1])
		}
		why, err := p.devicesReady(ctx, own)
		if err != nil {
			return err
		}
		ready.Unreached = why
	}
	r := own.Record()
	ready.Accel, ready.Fabric, ready.UCX, ready.DeviceFaults, ready.VMs = r.Accel, r.Fabric, r.UCX, r.DeviceFaults, r.VMs
	p.say(message{Host: &ready})
	return nil
}

// devicesReady waits until the devices of the other hosts' VMs answer those of this host's VMs. It returns the
// devices that do not, in words. They are then not used; with placement.strict, their fault is an error.
func (p *part) devicesReady(ctx context.Context, own *state.Owned) (string, error) {
	reaching, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	r, err := own.Await(reaching, func(r *state.Record) bool { return r.DevicesUnreached() == "" })
	why := r.DevicesUnreached()
	switch {
	case context.Cause(ctx) != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return "", nil
	case p.start.Spec.Placement.Strict:
		return "", fmt.Errorf("%s (leave out --strict to start nevertheless)", why)
	}
	return why, own.Write(func(r *state.Record) { r.DeviceFaults = append(r.DeviceFaults, why) })
}

// serve serves the part from ready to its end.
func (p *part) serve(ctx context.Context, c Part) error {
	lead := make(chan *channel.Stream)
	c.Board().Handle("lead", func(s *channel.Stream) {
		select {
		case lead <- s:
			<-s.Gone()
		case <-ctx.Done():
		}
	})
	m, err := c.Board().Client(p.conn, channel.Fields{{Key: "cluster", Value: c.Owned().Name()}})
	if err != nil {
		c.Kill(ctx)
		return err
	}
	defer m.Close()
	p.answers.start(m)
	defer p.answers.close()
	var s *channel.Stream
	select {
	case s = <-lead:
	case <-m.Done():
	case <-ctx.Done():
	case <-time.After(leadBound):
	}
	down := make(chan bool, 1) // true: the front asks for the end; false: it has disconnected
	if s == nil {
		down <- false
	} else {
		go func() { down <- follow(s) }()
	}
	for {
		select {
		case err := <-c.Lost():
			ev := hostEvent{Why: err.Error()}
			var lost *state.VMError
			if errors.As(err, &lost) {
				ev.Why, ev.Lines = lost.Err.Error(), lost.Console
			}
			ev.Lost, _, _ = strings.Cut(ev.Why, " ")
			linejson.Write(s, ev)
		case help := <-down:
			var end error
			if help {
				end = c.Down(ctx)
			} else {
				end = c.Kill(ctx)
			}
			ev := hostEvent{Down: true}
			if end != nil {
				ev.Why = end.Error()
			}
			if help {
				linejson.Write(s, ev)
				select { // the front reads the event and closes the stream
				case <-m.Done():
				case <-time.After(leadEvery):
				}
			}
			return end
		case <-c.Asked(): // nearmetal down on this host
			err := c.Down(ctx)
			linejson.Write(s, hostEvent{Down: true, Why: "its part of the cluster was ended there by nearmetal down"})
			return err
		case <-ctx.Done():
			return c.Kill(ctx)
		case <-m.Done():
			return c.Kill(ctx)
		}
	}
}

// follow reads the front's heartbeats (dots) until its request to end ("d"). It returns false if the front has
// disconnected, or if no heartbeat has arrived for leadBound.
func follow(s *channel.Stream) bool {
	said := make(chan byte)
	go func() {
		defer close(said)
		var b [1]byte
		for {
			if _, err := s.Read(b[:]); err != nil {
				return
			}
			said <- b[0]
		}
	}()
	t := time.NewTimer(leadBound)
	defer t.Stop()
	for {
		select {
		case b, ok := <-said:
			if !ok || b == 'd' {
				return ok
			}
			t.Reset(leadBound)
		case <-t.C:
			s.Reset("the front was silent for too long")
			return false
		}
	}
}

// partConn is the connection to the front. It detects the end of the connection even while nothing is read from it,
// because the front sends nothing while the VMs boot.
type partConn struct {
	r     *io.PipeReader
	w     io.Writer
	ended chan struct{}
}

func newPartConn(in io.Reader, out io.Writer) *partConn {
	r, w := io.Pipe()
	c := &partConn{r: r, w: out, ended: make(chan struct{})}
	go func() {
		// Hides the WriterTo of bufio: in Go 1.22 it first writes zero bytes, which blocks a pipe until it is read.
		_, err := io.Copy(w, struct{ io.Reader }{in})
		if err == nil {
			err = io.EOF
		}
		close(c.ended)
		w.CloseWithError(err)
	}()
	return c
}

func (c *partConn) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c *partConn) Write(p []byte) (int, error) { return c.w.Write(p) }
func (c *partConn) Close() error                { return c.r.Close() }

// addressOf parses the address by which other hosts reach a host: only an IP address is accepted; a zone is dropped.
func addressOf(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "%")
	return netip.ParseAddr(text)
}
