package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
)

func newPauseCommand() *cobra.Command {
	return holdCommand(true, &cobra.Command{
		Use:     "pause [NAME]",
		GroupID: groupCluster,
		Short:   "Let the VMs of a cluster stand still",
		Long: `Stops the VMs of a cluster: their time stands still, their memory stays. What
runs in them goes on with nearmetal resume, and finds that its clock has jumped.
Commands in a paused cluster are refused; nearmetal down ends it. VMs that a
job of Slurm keeps running are not stopped.`,
		Example: "  nearmetal pause demo\n  nearmetal resume demo",
	})
}

func newResumeCommand() *cobra.Command {
	return holdCommand(false, &cobra.Command{
		Use:     "resume [NAME]",
		GroupID: groupCluster,
		Short:   "Let the VMs of a paused cluster go on",
		Long:    "Lets the VMs of a cluster that nearmetal pause has stopped go on.",
		Example: "  nearmetal resume demo",
	})
}

// holdCommand completes a command that stops the VMs of a cluster or lets them go on.
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
