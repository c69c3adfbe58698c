package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	lv "github.com/digitalocean/go-libvirt"

	"nearmetal/internal/backend/console"
	"nearmetal/internal/backend/qemufacts"
)

// UUID is a domain's UUID in libvirt's form: 8-4-4-4-12 digits.
type UUID string

// Domain is a domain that a libvirtd knows.
type Domain struct {
	Name string
	UUID UUID
	// Running reports whether it has a QEMU.
	Running bool
	d       lv.Domain
}

func domainOf(d lv.Domain) *Domain {
	h := hex.EncodeToString(d.UUID[:])
	return &Domain{Name: d.Name, Running: d.ID >= 0,
		UUID: UUID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), d: d}
}

// Versions returns the versions of the daemon and of its QEMU, as major*1000000 + minor*1000 + micro.
func (c *Conn) Versions(ctx context.Context) (daemon, qemu uint64, err error) {
	if daemon, err = call(ctx, c, c.rpc.ConnectGetLibVersion); err != nil {
		return 0, 0, err
	}
	qemu, err = call(ctx, c, c.rpc.ConnectGetVersion)
	return daemon, qemu, err
}

// Capabilities returns the capabilities of q35 machines of a type, "kvm" or "qemu", as XML. emulator is QEMU's path;
// "": libvirt's choice.
func (c *Conn) Capabilities(ctx context.Context, emulator, kind string) (string, error) {
	one := func(s string) lv.OptString {
		if s == "" {
			return nil
		}
		return lv.OptString{s}
	}
	return call(ctx, c, func() (string, error) {
		return c.rpc.ConnectGetDomainCapabilities(one(emulator), one("x86_64"), one("q35"), one(kind), 0)
	})
}

// NoKVM returns the daemon's reason for not supporting domains of type kvm; "": it supports them.
func (c *Conn) NoKVM(ctx context.Context) (string, error) {
	_, err := c.Capabilities(ctx, "", "kvm")
	var s *Said
	if errors.As(err, &s) {
		return s.Text, nil
	}
	return "", err
}

// Create makes a transient domain, which ends with this connection, paused before its first instruction.
func (c *Conn) Create(ctx context.Context, xml string) (*Domain, error) {
	d, err := call(ctx, c, func() (lv.Domain, error) {
		return c.rpc.DomainCreateXML(xml, lv.DomainStartAutodestroy|lv.DomainStartPaused)
	})
	if err != nil {
		return nil, err
	}
	return domainOf(d), nil
}

// Find returns the domain with a UUID or a name. See IsNoDomain.
func (c *Conn) Find(ctx context.Context, name string) (*Domain, error) {
	id, err := hex.DecodeString(strings.ReplaceAll(name, "-", ""))
	d, err := call(ctx, c, func() (lv.Domain, error) {
		if err == nil && len(id) == lv.UUIDBuflen {
			return c.rpc.DomainLookupByUUID(lv.UUID(id))
		}
		return c.rpc.DomainLookupByName(name)
	})
	if err != nil {
		return nil, err
	}
	return domainOf(d), nil
}

// maxDomains bounds the list of domains that a daemon returns.
const maxDomains = 1 << 14

// List returns all domains, running ones first.
func (c *Conn) List(ctx context.Context) ([]*Domain, error) {
	all, err := call(ctx, c, func() ([]lv.Domain, error) {
		l, _, err := c.rpc.ConnectListAllDomains(1, lv.ConnectListDomainsActive|lv.ConnectListDomainsInactive)
		return l, err
	})
	if err != nil {
		return nil, err
	}
	var list []*Domain
	for _, running := range []bool{true, false} {
		for _, d := range all[:min(len(all), maxDomains)] {
			if x := domainOf(d); x.Running == running {
				list = append(list, x)
			}
		}
	}
	return list, nil
}

// XML returns the XML of a domain: of its running state, or if it does not run of its definition.
func (c *Conn) XML(ctx context.Context, d *Domain) (string, error) {
	return call(ctx, c, func() (string, error) { return c.rpc.DomainGetXMLDesc(d.d, 0) })
}

// Defined returns the XML from which a domain is started the next time, with its passwords if secrets is set; for a
// transient domain that of its running state.
func (c *Conn) Defined(ctx context.Context, d *Domain, secrets bool) (string, error) {
	flags := lv.DomainXMLInactive
	if secrets {
		flags |= lv.DomainXMLSecure
	}
	return call(ctx, c, func() (string, error) { return c.rpc.DomainGetXMLDesc(d.d, flags) })
}

// Network returns the XML of one of the daemon's networks.
func (c *Conn) Network(ctx context.Context, name string) (string, error) {
	return call(ctx, c, func() (string, error) {
		n, err := c.rpc.NetworkLookupByName(name)
		if err != nil {
			return "", err
		}
		return c.rpc.NetworkGetXMLDesc(n, 0)
	})
}

// Persistent reports whether a domain is still defined when it does not run.
func (c *Conn) Persistent(ctx context.Context, d *Domain) (bool, error) {
	n, err := call(ctx, c, func() (int32, error) { return c.rpc.DomainIsPersistent(d.d) })
	return n != 0, err
}

// Define sets the XML from which a domain is started the next time.
func (c *Conn) Define(ctx context.Context, xml string) error {
	return c.do(ctx, func() error { _, err := c.rpc.DomainDefineXMLFlags(xml, lv.DomainDefineValidate); return err })
}

func (c *Conn) do(ctx context.Context, f func() error) error {
	_, err := call(ctx, c, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Resume lets a domain run.
func (c *Conn) Resume(ctx context.Context, d *Domain) error {
	return c.do(ctx, func() error { return c.rpc.DomainResume(d.d) })
}

// Suspend pauses a domain and its clock.
func (c *Conn) Suspend(ctx context.Context, d *Domain) error {
	return c.do(ctx, func() error { return c.rpc.DomainSuspend(d.d) })
}

// Destroy ends a domain at once; nil also if it has already ended.
func (c *Conn) Destroy(ctx context.Context, d *Domain) error {
	err := c.do(ctx, func() error { return c.rpc.DomainDestroyFlags(d.d, lv.DomainDestroyDefault) })
	if IsNoDomain(err) || IsNotRunning(err) {
		return nil
	}
	return err
}

// Attach plugs a device, as XML, into a running domain until the domain ends. See IsBusy.
func (c *Conn) Attach(ctx context.Context, d *Domain, xml string) error {
	return c.do(ctx, func() error { return c.rpc.DomainAttachDeviceFlags(d.d, xml, uint32(lv.DomainAffectLive)) })
}

// Reset resets a domain, like its reset button.
func (c *Conn) Reset(ctx context.Context, d *Domain) error {
	return c.do(ctx, func() error { return c.rpc.DomainReset(d.d, 0) })
}

// Runs reports whether a domain's CPUs run: it has a QEMU, and is not paused.
func (c *Conn) Runs(ctx context.Context, d *Domain) (bool, error) {
	state, err := call(ctx, c, func() (int32, error) {
		s, _, err := c.rpc.DomainGetState(d.d, 0)
		return s, err
	})
	return lv.DomainState(state) == lv.DomainRunning, err
}

// Monitor returns the monitor of a domain's QEMU, reached through the daemon.
func (c *Conn) Monitor(d *Domain) qemufacts.Monitor { return monitor{c, d} }

type monitor struct {
	c *Conn
	d *Domain
}

// Execute runs a QMP command. A command that QEMU rejects returns a *qemufacts.Refused.
func (m monitor) Execute(ctx context.Context, command string, args, result any) error {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return err
	}
	text, err := call(ctx, m.c, func() (string, error) { return m.c.rpc.QEMUDomainMonitorCommand(m.d.d, string(line), 0) })
	if err != nil {
		return err
	}
	var a struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Class string `json:"class"`
			Desc  string `json:"desc"`
		} `json:"error"`
	}
	switch err := json.Unmarshal([]byte(text), &a); {
	case err != nil:
		return fmt.Errorf("QEMU: %s: strange answer: %w", command, err)
	case a.Error != nil:
		return &qemufacts.Refused{Command: command, Class: a.Error.Class, Desc: console.Harmless(a.Error.Desc, 500)}
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(a.Return, result); err != nil {
		return fmt.Errorf("QEMU: %s: strange answer: %w", command, err)
	}
	return nil
}

// End is the way in which a domain ended, as reported by libvirtd.
type End int

// The ends.
const (
	EndShutdown  End = iota // the guest powered off
	EndDestroyed            // a user ended it
	EndFailed               // QEMU crashed, or could not continue
	EndOther                // migrated, saved
)

// Ends calls f with the UUID of each domain that ends, and how it ended, until the connection ends. f must not block.
func (c *Conn) Ends(f func(UUID, End)) error {
	// Ending a subscription early can block the library's reader, so it lasts as long as the connection.
	events, err := c.rpc.LifecycleEvents(context.Background())
	if err != nil {
		return said(err)
	}
	go func() {
		for e := range events {
			if lv.DomainEventType(e.Event) != lv.DomainEventStopped {
				continue
			}
			end := EndOther
			switch lv.DomainEventStoppedDetailType(e.Detail) {
			case lv.DomainEventStoppedShutdown:
				end = EndShutdown
			case lv.DomainEventStoppedDestroyed:
				end = EndDestroyed
			case lv.DomainEventStoppedCrashed, lv.DomainEventStoppedFailed:
				end = EndFailed
			}
			f(domainOf(e.Dom).UUID, end)
		}
	}()
	return nil
}

// Shutdowns calls f with QEMU's reason when a domain's machine stops: guest-shutdown, guest-reset, ….
func (c *Conn) Shutdowns(d *Domain, f func(reason string)) error {
	events, err := c.rpc.SubscribeQEMUEvents(context.Background(), d.Name)
	if err != nil {
		return said(err)
	}
	go func() {
		for e := range events {
			var x struct {
				Reason string `json:"reason"`
			}
			if e.Event == "SHUTDOWN" && json.Unmarshal(e.Details, &x) == nil {
				f(x.Reason)
			}
		}
	}()
	return nil
}
