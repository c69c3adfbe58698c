package vsphere

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/topology"
)

func init() { topology.RegisterSuffix(Suffix, openCapture) }

// openCapture reads a host from a capture.
func openCapture(name string) (*topology.Host, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	defer f.Close()
	h, err := hostOf(ReadCapture(bufio.NewReader(f)))
	if err != nil {
		return nil, fmt.Errorf("topology: %s: %w", filepath.Clean(name), err)
	}
	return h, nil
}

func hostOf(c *Capture, err error) (*topology.Host, error) {
	if err != nil {
		return nil, err
	}
	return c.Topology()
}

// Part has the operations of commands on vCenter that do not use the backend. Ask asks a person for a password; it
// returns "" if nobody can answer.
type Part struct {
	Ask func(whose string) (string, error)
}

// login logs in with the server of the variables; host is the server if they name none.
func (p Part) login(ctx context.Context, host string) (*Session, string, error) {
	a, err := ReadAccess("")
	if err != nil && host != "" && os.Getenv(varURL) == "" {
		if b, e := ReadAccess(host); e == nil { // a host without a vCenter
			a, err, host = b, nil, ""
		}
	}
	if err != nil {
		return nil, "", err
	}
	if err := p.ask(a); err != nil {
		return nil, "", err
	}
	s, err := Login(ctx, a)
	return s, host, err
}

// AskPassword asks for the password if it is not configured. Without a server's name it does nothing: later calls
// that need a server fail.
func (p Part) AskPassword() error {
	a, err := ReadAccess("")
	if err != nil {
		return nil
	}
	return p.ask(a)
}

// ask asks for the password if it is not configured.
func (p Part) ask(a *Access) error {
	if !a.Missing() || p.Ask == nil {
		return nil
	}
	text, err := p.Ask(a.user + " at " + a.server)
	if err == nil && text != "" {
		a.Keep(text)
	}
	return err
}

// Topology reads an ESXi host by its name or path in the inventory.
func (p Part) Topology(ctx context.Context, host string) (*topology.Host, error) {
	c, err := p.read(ctx, host)
	if err != nil {
		return nil, err
	}
	h, err := c.Topology()
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", host, err)
	}
	return h, nil
}

// Gather reads a host, and returns a function that writes its capture. If anonymous is set the host is called name in
// it.
func (p Part) Gather(ctx context.Context, host, name string, anonymous bool) (func(io.Writer) error, error) {
	if strings.Trim(name, ".") == "" || hostName(name) != name {
		return nil, fmt.Errorf("name %.40q: letters, digits, '.', '_' and '-'", name)
	}
	c, err := p.read(ctx, host)
	if err != nil {
		return nil, err
	}
	if anonymous {
		if err := c.Anonymise(name); err != nil {
			return nil, fmt.Errorf("host %s: %w", host, err)
		}
	}
	return c.Write, nil
}

func (p Part) read(ctx context.Context, host string) (*Capture, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	s, host, err := p.login(ctx, host)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Read(ctx, host)
}
