package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/job"
)

func newEnvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "env [NAME] [--unset]",
		GroupID: groupMPI,
		Short:   "Print the variables that send mpirun's ranks into the VMs",
		Long: `Prints export commands for a shell of this host. After eval, plain mpirun,
mpiexec and their like, of any MPI library that nearmetal knows, put their ranks
into the VMs of the cluster. --unset prints what takes the variables back.`,
		Example: `  eval $(nearmetal env demo)
  mpirun -n 4 ./app
  eval $(nearmetal env --unset)`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	unset := cmd.Flags().Bool("unset", false, "print the commands that unset the variables")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var lines []string
		var err error
		if *unset { // the cluster may have ended
			lines = job.UnsetCommands()
		} else {
			var name string
			if name, err = clusterTarget(cmd, firstArg(args)); err == nil {
				lines, err = job.EnvCommands(name)
			}
		}
		for _, l := range lines {
			fmt.Fprintln(cmd.OutOrStdout(), l)
		}
		return err
	}
	return cmd
}
