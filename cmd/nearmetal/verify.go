package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/terminal"
	"nearmetal/internal/verify"
)

func newVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify [NAME] [--json]",
		GroupID: groupCluster,
		Short:   "Hold running VMs against their plan",
		Long: `Reads the VMs of a running cluster back and prints plan against fact, row by
row: the CPUs of vCPUs and of QEMU's other threads, each node's memory with its
policy, its pages and their size, the topology, devices and region in QEMU, and
nodes, distances, memory, caches and devices as the kernels in the VMs see
them. See docs/verify.md.

The exit status is 1 if anything differs. A note is no difference: it says what
could not be read, or what this QEMU cannot show.`,
		Example: `  nearmetal verify
  nearmetal verify demo
  nearmetal verify demo --json`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible()
		defer stop()
		c, err := cluster.Connect(ctx, firstArg(args))
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := c.Verify(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), r)
		} else {
			err = printReport(cmd, r)
		}
		if n := r.Count(verify.Differs); n > 0 && err == nil {
			err = fmt.Errorf("%s is not as planned: %d of %d points differ", r.Cluster, n, len(r.Rows))
		}
		return err
	}
	return cmd
}

func printReport(cmd *cobra.Command, r *verify.Report) error {
	t := terminal.NewTable("vm", "what", "planned", "found", "")
	for _, row := range r.Rows {
		t.Row(row.VM, row.What, row.Planned, row.Found, row.Status)
	}
	return t.Print(cmd.OutOrStdout())
}

// addNoVerifyFlag adds --no-verify.
func addNoVerifyFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("no-verify", false, "do not hold the VMs against their plan once they are ready (the kernels in them are asked with KVM only; nearmetal verify always does)")
}
