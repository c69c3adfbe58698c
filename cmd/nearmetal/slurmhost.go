package main

import (
	"errors"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm/node"
)

// newSlurmHostCommand returns the command that the plugin runs as root if a job's VMs did not boot.
func newSlurmHostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-host",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Check that this host has what VMs need (started by the SPANK plugin)",
		Example: "  nearmetal slurm doctor",
		Args:    noArgs,
	}
	accel := cmd.Flags().String("accel", "auto", "the site's choice of auto, kvm or tcg")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := node.CheckHost(cmd.Context(), *accel)
		var fault *node.HostFault
		if errors.As(err, &fault) {
			return &ExitError{Code: exitHostFault, Err: err}
		}
		return err
	}
	return cmd
}
