package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
)

func newPauseCommand() *cobra.Command {
	return holdCommand(true, &cobra.Command{
		Use:     "pause [NAME]",
		GroupID: groupCluster,
		Short:   "Suspend a cluster's VMs",
		Long: `Suspends the VMs of a cluster. Memory is kept, and guest clocks jump when
nearmetal resume lets the VMs go on. Commands in a paused cluster are refused;
nearmetal down ends it. VMs of a Slurm job are not suspended.`,
		Example: "  nearmetal pause demo\n  nearmetal resume demo",
	})
}

func newResumeCommand() *cobra.Command {
	return holdCommand(false, &cobra.Command{
		Use:     "resume [NAME]",
		GroupID: groupCluster,
		Short:   "Resume a paused cluster's VMs",
		Long:    "Resumes the VMs of a cluster that nearmetal pause has suspended.",
		Example: "  nearmetal resume\n  nearmetal resume demo",
	})
}

// holdCommand completes a command that stops or resumes the VMs of a cluster.
func holdCommand(stop bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args = rangeArgs(0, "NAME")
	cmd.ValidArgsFunction = completeCluster
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := clusterTarget(cmd, firstArg(args))
		if err != nil {
			return err
		}
		ctx, done := interruptible()
		defer done()
		c, err := client.Connect(ctx, name)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Hold(ctx, stop)
	}
	return cmd
}
