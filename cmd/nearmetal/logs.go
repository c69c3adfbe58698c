package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
)

func newLogsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logs [NAME] [--vm VM] [--follow]",
		GroupID: groupCluster,
		Short:   "Show the console of a VM",
		Long: `Shows what a VM has written on its console: the kernel's and the agent's
messages. Control characters are made harmless.`,
		Example:           "  nearmetal logs\n  nearmetal logs demo --vm vm1 --follow",
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	vm := addVMFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "F", false, "go on as more is written, until the cluster ends")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := cluster.Find(firstArg(args))
		if err != nil {
			return err
		}
		name, err := r.FindVM(*vm)
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		return cluster.Logs(ctx, r, name, *follow, cmd.OutOrStdout())
	}
	return cmd
}
