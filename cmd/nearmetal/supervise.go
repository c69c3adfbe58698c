package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
)

func newSuperviseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "supervise",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Own a cluster (started by nearmetal up)",
		Example: "  nearmetal up",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return cluster.Supervise() },
	}
}
