package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/explain"
	"nearmetal/internal/text"
)

// addConnectFlag adds --connect, the libvirtd whose domains are asked for.
func addConnectFlag(cmd *cobra.Command) *string {
	uri := cmd.Flags().String("connect", "", "the libvirtd that has the domain, `URI`: qemu:///system or qemu:///session (default as virsh chooses)")
	complete := cobra.FixedCompletions([]string{"qemu:///system", "qemu:///session"}, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("connect", complete); err != nil {
		panic(err)
	}
	return uri
}

// connectLibvirtd connects to the libvirtd of --connect.
func connectLibvirtd(ctx context.Context, uri string) (*daemon.Conn, error) {
	a, err := daemon.Parse(uri)
	if err != nil {
		return nil, usagef("--connect: %v", err)
	}
	return daemon.Dial(ctx, a)
}

// findDomain finds a domain by its name or UUID.
func findDomain(ctx context.Context, c *daemon.Conn, name string) (*daemon.Domain, error) {
	d, err := c.Find(ctx, name)
	if daemon.IsNoDomain(err) {
		return nil, fmt.Errorf("libvirtd at %s has no domain %s: virsh -c %[1]s list --all shows them", c.Address, text.Clean(name))
	}
	return d, err
}

// domainText is which XML of a domain is read.
type domainText int

const (
	running     domainText = iota // what it runs as
	next                          // what it is started from the next time
	nextSecrets                   // that, with its passwords
)

// readXML reads a version of a domain, and the networks that it names.
func readXML(ctx context.Context, c *daemon.Conn, d *daemon.Domain, v domainText) (*explain.Domain, string, error) {
	var doc string
	var err error
	if v == running {
		doc, err = c.XML(ctx, d)
	} else {
		doc, err = c.Defined(ctx, d, v == nextSecrets)
	}
	if err != nil {
		return nil, "", err
	}
	e, err := explain.Read(strings.NewReader(doc))
	if err != nil {
		return nil, "", fmt.Errorf("domain %s: %w", text.Clean(d.Name), err)
	}
	e.Networks = map[string]string{}
	for _, name := range e.NetworkNames() {
		network, err := c.Network(ctx, name)
		var said *daemon.Said
		switch {
		case err == nil:
			e.Networks[name] = network
		case !errors.As(err, &said): // a daemon that has no such network leaves it unknown
			return nil, "", err
		}
	}
	return e, doc, nil
}

// completeDomain completes the names of domains of a libvirtd that runs.
func completeDomain(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	uri, _ := cmd.Flags().GetString("connect")
	a, err := daemon.Parse(uri)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := daemon.Reach(cmd.Context(), a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	list, _ := c.List(cmd.Context())
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

var errNoDomains = errors.New("has no domains")
