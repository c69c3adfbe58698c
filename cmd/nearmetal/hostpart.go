package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
)

// newHostPartCommand returns the command that nearmetal run and up start over ssh on each host of --hosts.
func newHostPartCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "host-part",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Own the VMs on this host of a cluster over several (started over ssh)",
		Example: "  nearmetal run --hosts node1,node2 --vms 2 -- mpirun ./app",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.HostPart(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
