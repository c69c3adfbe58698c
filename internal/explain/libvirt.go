package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
	"nearmetal/internal/verify"
)

// Which is one of the XML documents that libvirtd has of a domain.
type Which int

const (
	Running     Which = iota // of the domain that runs
	Next                     // of its next start
	NextSecrets              // the same with its passwords
)

// Libvirtd is the part of a connection (daemon.Conn) that Fetch needs.
type Libvirtd interface {
	XML(ctx context.Context, d *daemon.Domain) (string, error)
	Defined(ctx context.Context, d *daemon.Domain, secrets bool) (string, error)
	Network(ctx context.Context, name string) (string, error)
}

// Fetch reads the XML of a domain in c, and the networks that it names. It returns the XML as well. A network that
// the daemon does not have is left out.
func Fetch(ctx context.Context, c Libvirtd, d *daemon.Domain, v Which) (*Domain, string, error) {
	var doc string
	var err error
	if v == Running {
		doc, err = c.XML(ctx, d)
	} else {
		doc, err = c.Defined(ctx, d, v == NextSecrets)
	}
	if err != nil {
		return nil, "", err
	}
	e, err := Read(strings.NewReader(doc))
	if err != nil {
		return nil, "", fmt.Errorf("domain %s: %w", text.Clean(d.Name), err)
	}
	e.Networks = map[string]string{}
	for _, name := range e.NetworkNames() {
		network, err := c.Network(ctx, name)
		switch {
		case err == nil:
			e.Networks[name] = network
		case !errors.As(err, new(*daemon.Said)):
			return nil, "", err
		}
	}
	return e, doc, nil
}

// Verify compares a domain of c that runs with the plan that its own XML makes on this host.
func Verify(ctx context.Context, c *daemon.Conn, d *daemon.Domain) (*verify.Report, error) {
	e, _, err := Fetch(ctx, c, d, Running)
	if err != nil {
		return nil, err
	}
	h, err := topology.Read("/")
	if err != nil {
		return nil, err
	}
	vm, err := Plan(e, h)
	if err != nil {
		return nil, fmt.Errorf("domain %s: %w", text.Clean(d.Name), err)
	}
	i, err := c.Inspector(d)
	if err != nil {
		return nil, err
	}
	return verify.Check(ctx, e.Name, nil, []verify.VM{{Plan: *vm, Host: i}}), nil
}
