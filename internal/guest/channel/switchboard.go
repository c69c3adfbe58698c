package channel

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"nearmetal/internal/text"
)

// KeyVM is the header field that names the VM a stream is for.
const KeyVM = "vm"

// Switchboard connects the streams that clients and VMs open to the Muxes of a cluster's VMs, and handles streams of
// registered kinds itself.
type Switchboard struct {
	// Policy, if set, is called for every stream before it is opened to a VM. It returns the header to open it with,
	// or an error that rejects it. From is "" for a client, else the VM that opened the stream: its header is then
	// hostile, and only kind "exec" is passed here. Set it before the first stream.
	Policy func(from, to, kind string, header Fields) (Fields, error)

	mu       sync.Mutex
	vms      map[string]*Mux
	ended    map[string]string // why a VM that was added is gone
	remote   map[string]bool   // the VM is behind another Switchboard
	handlers map[string]func(*Stream)
}

// NewSwitchboard returns a Switchboard without VMs.
func NewSwitchboard() *Switchboard {
	return &Switchboard{vms: map[string]*Mux{}, ended: map[string]string{}, remote: map[string]bool{}, handlers: map[string]func(*Stream){}}
}

// AddVM makes the VM behind m reachable by its name until m ends.
func (b *Switchboard) AddVM(name string, m *Mux) {
	b.mu.Lock()
	b.vms[name] = m
	b.mu.Unlock()
}

// AddRemote makes a VM behind another Switchboard, of which m is a client, reachable by its name until m ends.
func (b *Switchboard) AddRemote(name string, m *Mux) {
	b.mu.Lock()
	b.vms[name], b.remote[name] = m, true
	b.mu.Unlock()
}

// EndVM makes a VM unreachable; its open streams stay. why is the one-line error of later streams to the VM.
func (b *Switchboard) EndVM(name, why string) {
	b.mu.Lock()
	delete(b.vms, name)
	b.ended[name] = why
	b.mu.Unlock()
}

// Handle registers f for streams of a kind that clients open without naming a VM. It runs in a goroutine for each
// stream, which is closed when f returns. VMs cannot open such streams.
func (b *Switchboard) Handle(kind string, f func(*Stream)) {
	b.mu.Lock()
	b.handlers[kind] = f
	b.mu.Unlock()
}

// Client serves a client's connection, the control socket of a cluster, until it ends.
func (b *Switchboard) Client(conn io.ReadWriteCloser, hello Fields) (*Mux, error) {
	return New(conn, Options{Name: "the client", Hello: hello, Accept: b.accept("")})
}

// FromVM returns the Options.Accept with which the VM's Mux lets the VM reach others of its cluster.
func (b *Switchboard) FromVM(name string) func(kind string, header Fields) (Route, error) {
	return b.accept(name)
}

func (b *Switchboard) accept(from string) func(string, Fields) (Route, error) {
	return func(kind string, h Fields) (Route, error) {
		to := h.Get(KeyVM)
		if from != "" && kind != "exec" {
			return Route{}, fmt.Errorf("a VM may not open streams of kind %s", kind)
		}
		b.mu.Lock()
		m, f, remote, why := b.vms[to], b.handlers[kind], b.remote[to], b.ended[to]
		b.mu.Unlock()
		if to == "" {
			if from != "" || f == nil {
				return Route{}, fmt.Errorf("kind %s: no VM is named", kind)
			}
			return Route{Handle: f}, nil
		}
		if m == nil && why != "" {
			return Route{}, errors.New(why)
		}
		if m == nil {
			return Route{}, fmt.Errorf("no VM %q in this cluster", text.CleanLines(to))
		}
		if err := m.Err(); err != nil {
			return Route{}, err
		}
		if !remote {
			h = h.Without(KeyVM)
		}
		if b.Policy != nil {
			var err error
			if h, err = b.Policy(from, to, kind, h); err != nil {
				return Route{}, err
			}
		}
		return Route{Mux: m, Header: h}, nil
	}
}
