package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm/rank"
	"nearmetal/internal/terminal"
)

func newSlurmTaskCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "slurm-task COMMAND [ARG...]",
		GroupID:            groupCluster,
		Hidden:             true,
		Short:              "Be a task of a Slurm step: run its command in a VM (started by the SPANK plugin)",
		Example:            "  srun --vm hostname",
		DisableFlagParsing: true, // they are the task's own
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := rank.Run(append([]string{"nearmetal-task"}, args...), streams(cmd))
			if err != nil {
				return err
			}
			if st.Message != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %s\n", terminal.Clean(st.Message))
			}
			if st.Signal != 0 {
				rank.Die(st.Signal)
				os.Exit(128 + int(st.Signal))
			}
			return exitStatus(st.Code)
		},
	}
}
