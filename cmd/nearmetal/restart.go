package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/job"
)

func newRestartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restart [NAME]/VM",
		GroupID: groupCluster,
		Short:   "Start one VM of a cluster again",
		Long: `Ends a VM of a cluster of nearmetal up, if it still runs, and starts it again:
on the same CPUs and memory nodes, with its address, its devices and the region.
The other VMs go on. What ran in the VM has ended, and files that it wrote
outside shares are gone. It returns when the VM is ready. A VM that panicked or
was killed can be restarted as long as another VM of the cluster runs.`,
		Example:           "  nearmetal restart demo/vm1\n  nearmetal restart /vm1",
		Args:              exactArgs("NAME/VM"),
		ValidArgsFunction: completeTarget,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := job.ParseTarget(args[0])
		if t.VM == "" {
			return usagef("restart needs one VM: %s/vm0; for all: down, then up", args[0])
		}
		ctx, done := interruptible()
		defer done()
		c, err := client.Connect(ctx, t.Cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Restart(ctx, t.VM)
	}
	return cmd
}
