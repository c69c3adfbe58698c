package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/cloud"
	"nearmetal/internal/host/check"
	"nearmetal/internal/job"
	"nearmetal/internal/terminal"
)

// runVM checks a running VM from the inside, and this host for what only the host can report about it.
func (f *checkFlags) runVM(ctx context.Context, cmd *cobra.Command, p *terminal.Progress) error {
	step := p.Start("checking " + f.vm)
	defer step.Done()
	t := target{Cluster: *f.cluster, VM: f.vm}
	if strings.Contains(f.vm, "/") {
		t = job.ParseTarget(f.vm)
	}
	r, err := job.Check(ctx, t.Cluster, t.VM)
	if err != nil {
		return err
	}
	for i := range r.Rows {
		r.Rows[i].Fixable = false // --fix applies to this host; in a VM use the commands
	}
	// Nested paging is a property of KVM and cannot be seen from the inside.
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

// thisVM is the value of --vm without a name. A VM of that name is checked by CLUSTER/here.
const thisVM = "here"

// runThisVM checks the VM that nearmetal runs in, created by any tool: everything visible from the inside without
// privileges.
func (f *checkFlags) runThisVM(ctx context.Context, cmd *cobra.Command, o check.Options) error {
	if f.profile != "" && f.profile != string(check.Guest) {
		return usagef("--vm checks for %s: leave out --for %s", check.Guest, f.profile)
	}
	o.Profile = check.Guest
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	for i := range r.Rows {
		if r.Rows[i].ID == "vm.accel" && r.Rows[i].Status == check.NotApplicable {
			return errors.New("this is not a VM: nearmetal check is for hosts")
		}
	}
	if i := cloud.ReadInstance(ctx, f.root); !*f.json && i.Source != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s, flavor %s (%s)\n\n", orUnknown(i.Name), orUnknown(i.Flavor), i.Source)
	}
	return f.show(cmd, &r)
}

func orUnknown(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}
