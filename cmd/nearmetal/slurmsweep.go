package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm"
	"nearmetal/internal/text"
)

// newSlurmSweepCommand returns the command that the plugin runs as root at slurmd's start, and in a prolog that finds
// the directory of another job without a slurmstepd.
func newSlurmSweepCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-sweep",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Remove what jobs have left whose epilog did not run (started by the SPANK plugin)",
		Example: "  nearmetal host recover",
		Args:    noArgs,
	}
	var s slurm.Sweep
	cmd.Flags().StringVar(&s.Root, "root", "", "a directory with sys, dev, run and var in it, instead of this host")
	cmd.Flags().StringVar(&s.State, "state", slurm.DefaultState, "the plugin's directory of running jobs")
	cmd.Flags().StringVar(&s.Node, "node", "", "Slurm's `NAME` of this node; others' directories are left alone")
	cmd.Flags().Uint32Var(&s.Except, "except", 0, "the `NUMBER` of a job that is left alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return sweepJobs(cmd, s) }
	return cmd
}

// sweepJobs runs s and reports its result.
func sweepJobs(cmd *cobra.Command, s slurm.Sweep) error {
	jobs, undone, err := s.Run(cmd.Context())
	sayRemoved(cmd, jobs)
	sayUndone(cmd, undone)
	return err
}

// sayRemoved reports the removed remains of jobs.
func sayRemoved(cmd *cobra.Command, jobs []string) {
	for _, j := range jobs {
		fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: removed: %s\n", text.Clean(j))
	}
}
