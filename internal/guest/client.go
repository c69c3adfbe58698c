package guest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// Client opens streams to agents over a Mux: that of one VM, or that of a cluster's owner, for which VM selects the
// agent.
type Client struct {
	mux *channel.Mux
	vm  string
}

// NewClient returns a client over a Mux that is connected to one agent.
func NewClient(m *channel.Mux) *Client { return &Client{mux: m} }

// Dial returns a client over a connection to a cluster's owner, after it has received the owner's HELLO. The name
// ("cluster demo") is used in errors.
func Dial(ctx context.Context, conn io.ReadWriteCloser, name string) (*Client, error) {
	return DialAccept(ctx, conn, name, nil)
}

// DialAccept is Dial for an owner that also opens streams: accept routes them.
func DialAccept(ctx context.Context, conn io.ReadWriteCloser, name string, accept func(kind string, header channel.Fields) (channel.Route, error)) (*Client, error) {
	m, err := channel.New(conn, channel.Options{Name: name, Initiator: true, Accept: accept})
	if err != nil {
		return nil, err
	}
	if _, err := m.Hello(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return &Client{mux: m}, nil
}

// VM returns a client for one VM behind a cluster's owner.
func (c *Client) VM(name string) *Client { return &Client{c.mux, name} }

// Name returns the name of the client's VM; "" if its Mux is connected to one agent.
func (c *Client) Name() string { return c.vm }

// Mux returns the Mux that carries the client's streams.
func (c *Client) Mux() *channel.Mux { return c.mux }

// Close ends the Mux, and all of its streams.
func (c *Client) Close() error { return c.mux.Close() }

// Ping returns the round-trip time to the other side of the Mux.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) { return c.mux.Ping(ctx) }

// Poweroff asks the VM to write back the data that its shares cache and to power off. It returns once the agent has
// begun; the end of the VM is the end of the Mux.
func (c *Client) Poweroff(ctx context.Context) error {
	s, err := c.open("poweroff", "", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Receive(ctx)
	if err == nil || channel.IsReset(err) || ctx.Err() != nil {
		return err
	}
	return nil // the VM ended before it could answer
}

// open opens a stream to the agent of vm, or of the client's own VM if vm is "".
func (c *Client) open(kind, vm string, h channel.Fields) (*channel.Stream, error) {
	if vm == "" {
		vm = c.vm
	}
	if vm != "" {
		h = append(channel.Fields{{Key: channel.KeyVM, Value: vm}}, h...)
	}
	return c.mux.Open(kind, h)
}

// Agent is the client of one VM's agent that has sent HELLO.
type Agent struct {
	*Client
	Info Info
}

// AgentOptions are the parameters of NewAgent in addition to the connection.
type AgentOptions struct {
	// Name of the VM, in errors.
	Name string
	// Explain returns text for the error when the VM ends: the last lines of its console.
	Explain func() string
	// Accept routes streams that the VM opens: Switchboard.FromVM. Nil: none.
	Accept func(kind string, header channel.Fields) (channel.Route, error)
}

// NewAgent takes ownership of the host's end of a VM's channel and waits until the agent reports that the VM is
// ready. If it fails the connection is closed.
func NewAgent(ctx context.Context, conn io.ReadWriteCloser, o AgentOptions) (*Agent, error) {
	m, err := channel.New(conn, channel.Options{
		Name: o.Name, Initiator: true, Explain: o.Explain, Accept: o.Accept,
		MaxStreams: 256, MaxHeaders: 4 << 20,
	})
	if err != nil {
		return nil, err
	}
	f, err := m.Hello(ctx)
	if err == nil {
		var info Info
		if info, err = parseInfo(f); err == nil {
			return &Agent{Client: NewClient(m), Info: info}, nil
		}
		err = fmt.Errorf("%s: %w", o.Name, err)
	}
	m.Close()
	return nil, err
}

// Info is an agent's report on its VM when it is ready.
type Info struct {
	Agent  string // version of the agent
	Kernel string // release of the VM's kernel
	// Hypervisor is the hypervisor according to the VM's CPU: "kvm", "tcg", "vmware", "hyperv", its own word for
	// another; "": none.
	Hypervisor string
	Phases     []Phase // of the boot, in their order
	// Devices of the VM: those passed through, and soft RoCE.
	Devices []Device
}

// Device is a device as the VM sees it. Missing properties are "".
type Device struct {
	Kind   string `json:"kind"`             // "pci" (passed through) or "rxe" (soft RoCE)
	PCI    string `json:"pci,omitempty"`    // its address in the VM
	Driver string `json:"driver,omitempty"` // in the VM
	Net    string `json:"net,omitempty"`    // network interface
	MAC    string `json:"mac,omitempty"`
	RDMA   string `json:"rdma,omitempty"` // RDMA device
	GUID   string `json:"guid,omitempty"` // its node GUID
	State  string `json:"state,omitempty"`
	IP     string `json:"ip,omitempty"`
	Port   string `json:"port,omitempty"`      // of the RDMA device
	Layer  string `json:"linkLayer,omitempty"` // of the port: InfiniBand or Ethernet
	GID    string `json:"gidIndex,omitempty"`  // index of the port's GID for RoCE v2 that is derived from the IP address
	Node   string `json:"numaNode,omitempty"`  // in the VM
	MTU    string `json:"mtu,omitempty"`       // of the network interface, bytes
	PKey   string `json:"pkey,omitempty"`      // first P_Key of the port, on InfiniBand: 0xffff
}

// Phase is a point of a VM's boot.
type Phase struct {
	Name string        // init, modules, root, shares, network, region, ready
	At   time.Duration // since the VM's kernel started (CLOCK_BOOTTIME, ns)
}

// hypervisors maps the texts of CPUID leaf 0x40000000 to nearmetal's words.
var hypervisors = map[string]string{"KVMKVMKVM": "kvm", "TCGTCGTCGTCG": "tcg", "VMwareVMware": "vmware", "Microsoft Hv": "hyperv"}

// parseInfo parses an agent's HELLO.
func parseInfo(f channel.Fields) (Info, error) {
	i := Info{Agent: text.CleanLines(f.Get("agent")), Kernel: text.CleanLines(f.Get("kernel"))}
	i.Hypervisor = text.CleanLines(f.Get("hypervisor"))
	if name, ok := hypervisors[i.Hypervisor]; ok {
		i.Hypervisor = name
	} else if len(i.Hypervisor) > 12 {
		return i, fmt.Errorf("the agent sent a hypervisor %q", i.Hypervisor)
	}
	if i.Agent == "" {
		return i, fmt.Errorf("the other side of the channel is not an agent")
	}
	for _, p := range f.All("phase") {
		name, ns, _ := strings.Cut(p, " ")
		n, err := channel.Fields{{Key: "ns", Value: ns}}.Uint("ns", 1<<62)
		if err != nil || len(i.Phases) == 32 {
			return i, fmt.Errorf("the agent sent a phase %q of its boot", text.CleanLines(p))
		}
		i.Phases = append(i.Phases, Phase{text.CleanLines(name), time.Duration(n)})
	}
	for _, d := range f.All("device") {
		w := strings.Split(text.CleanLines(d), " ")
		if len(w) != 15 || len(i.Devices) == maxFunctions+16 || len(d) > 500 {
			return i, fmt.Errorf("the agent sent a device %q", text.CleanLines(d))
		}
		for k := range w {
			if w[k] == "-" {
				w[k] = ""
			}
		}
		if w[12] == "-1" {
			w[12] = ""
		}
		i.Devices = append(i.Devices, Device{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14]})
	}
	return i, nil
}
