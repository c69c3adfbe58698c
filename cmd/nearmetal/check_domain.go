package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/explain"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// runDomains checks domains of a libvirtd on this host: it prints the rows of nearmetal explain for each.
func (f *checkFlags) runDomains(ctx context.Context, cmd *cobra.Command) error {
	c, err := connectLibvirtd(ctx, *f.connect)
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := f.pick(ctx, c)
	if err != nil {
		return err
	}
	h, err := topology.Read("/")
	if err != nil {
		return err
	}
	noKVM, err := c.NoKVM(ctx)
	if err != nil {
		return err
	}
	var reports []*explain.Report
	failed := false
	for _, d := range list {
		e, _, err := explain.Fetch(ctx, c, d, explain.Running)
		if err != nil {
			return err
		}
		e.NoKVM = noKVM
		r, err := explain.Explain(e, h)
		if err != nil {
			return fmt.Errorf("domain %s: %w", text.Clean(d.Name), err)
		}
		reports = append(reports, r)
		failed = failed || r.Failed()
	}
	if *f.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), reports)
	} else {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			if _, err = io.WriteString(cmd.OutOrStdout(), r.Text(f.text(cmd))); err != nil {
				break
			}
		}
	}
	if err == nil && failed {
		err = findings(nil)
	}
	return err
}

// pick returns the domains that the flags name.
func (f *checkFlags) pick(ctx context.Context, c *daemon.Conn) ([]*daemon.Domain, error) {
	if f.allDomains {
		list, err := c.List(ctx)
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("libvirtd at %s %w", c.Address, errNoDomains)
		}
		return list, err
	}
	var list []*daemon.Domain
	for _, name := range f.domains {
		d, err := findDomain(ctx, c, name)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}
