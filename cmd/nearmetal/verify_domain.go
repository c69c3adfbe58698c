package main

import (
	"context"
	"fmt"

	"nearmetal/internal/explain"
	"nearmetal/internal/text"
	"nearmetal/internal/verify"
)

// verifyDomain compares a running domain, created by any tool, with its own XML.
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
	return explain.Verify(ctx, c, d)
}
