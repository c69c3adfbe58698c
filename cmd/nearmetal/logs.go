package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
)

func newLogsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logs [NAME[/VM]] [--follow]",
		GroupID: groupCluster,
		Short:   "Show the console of a VM",
		Long: `Shows what a VM has written on its console: the kernel's and the agent's
messages. Control characters are made harmless.`,
		Example:           "  nearmetal logs\n  nearmetal logs -f demo/vm1",
		Args:              rangeArgs(0, "NAME[/VM]"),
		ValidArgsFunction: completeTarget,
	}
	vm := addVMFlag(cmd, "whose console is shown")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on as more is written, until the cluster ends")
	cmd.Flags().BoolVarP(follow, "follow-older", "F", false, "the older form of -f")
	cmd.Flags().Lookup("follow-older").Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := vmTarget(args, *vm)
		if err != nil {
			return err
		}
		r, err := cluster.Find(t.cluster)
		if err != nil {
			return err
		}
		name, err := r.FindVM(t.vm)
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		if len(r.Remote) == 0 {
			return cluster.Logs(ctx, r, name, *follow, cmd.OutOrStdout())
		}
		c, err := cluster.Connect(ctx, r.Name)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Console(ctx, name, *follow, cmd.OutOrStdout())
	}
	return cmd
}
