package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/job"
	"nearmetal/internal/terminal"
)

// runVM checks a running VM from the inside, and of this host what only the host knows of it.
func (f *checkFlags) runVM(ctx context.Context, cmd *cobra.Command, p *terminal.Progress) error {
	step := p.Start("checking " + f.vm)
	defer step.Done()
	t := target{*f.cluster, f.vm}
	if strings.Contains(f.vm, "/") {
		t = parseTarget(f.vm)
	}
	r, err := job.Check(ctx, t.cluster, t.vm)
	if err != nil {
		return err
	}
	for i := range r.Rows {
		r.Rows[i].Fixable = false // --fix is for this host; in a VM the commands do
	}
	// Nested paging is KVM's and cannot be seen from the inside.
	h, err := check.Run(ctx, check.Options{Only: []string{"kvm.nested-paging"}})
	if err != nil {
		return err
	}
	r.Add(h.Rows...)
	if len(f.only) > 0 {
		if err := r.Keep(f.only); err != nil {
			return checkError(err)
		}
	}
	step.Done()
	return f.show(cmd, r)
}
