package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/launch"
)

func newHostfileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hostfile [NAME] --format FORMAT",
		GroupID: groupMPI,
		Short:   "Print the VMs of a cluster as an MPI launcher's host file",
		Example: `  nearmetal hostfile demo --format openmpi >hosts
  nearmetal hostfile --format slurm`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	format := cmd.Flags().String("format", "openmpi", "`FORMAT`: "+strings.Join(launch.Formats, ", "))
	if err := cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(launch.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("format", launch.Formats...)(cmd, []string{*format}); err != nil {
			return err
		}
		r, err := cluster.Find(firstArg(args))
		if err != nil {
			return err
		}
		text, err := launch.Hostfile(r.Hosts(), *format)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write([]byte(text))
		return err
	}
	return cmd
}
