package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/text"
)

// addConnectFlag adds --connect, the libvirtd whose domains are used.
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

// completeDomain completes the names of domains of a running libvirtd.
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
