package main

import (
	"context"
	"fmt"

	"nearmetal/internal/explain"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
	"nearmetal/internal/verify"
)

// verifyDomain compares a running domain, whoever made it, with its own XML.
func verifyDomain(ctx context.Context, uri, name string) (*verify.Report, error) {
	c, err := connectLibvirtd(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	d, err := findDomain(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if !d.Running {
		return nil, fmt.Errorf("domain %s does not run: virsh start it first", text.Clean(d.Name))
	}
	e, _, err := explain.Fetch(ctx, c, d, explain.Running)
	if err != nil {
		return nil, err
	}
	h, err := topology.Read("/")
	if err != nil {
		return nil, err
	}
	vm, err := explain.Plan(e, h)
	if err != nil {
		return nil, fmt.Errorf("domain %s: %w", text.Clean(d.Name), err)
	}
	i, err := c.Inspector(d)
	if err != nil {
		return nil, err
	}
	return verify.Check(ctx, e.Name, nil, []verify.VM{{Plan: *vm, Host: i}}), nil
}
