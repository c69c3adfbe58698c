package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/terminal"
)

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "up [flags] [--json]",
		GroupID: groupCluster,
		Short:   "Start a cluster and leave it running",
		Long: `Starts the VMs of a cluster, waits until all are ready, and leaves them to a
supervisor in the background. The name of the cluster is printed on standard
output; nearmetal down ends it. --json prints the record of the cluster with its
plan, as nearmetal ps NAME --json does.`,
		Example: `  nearmetal up --vms 2
  nearmetal up -f cluster.yaml --name demo
  nearmetal up --vms 4 --vcpus 2 --memory 1GiB
  nearmetal up --hosts node1,node2 --vms 2
  eval $(nearmetal env) && mpirun -n 8 ./app`,
		Args: noArgs,
	}
	boot := addBootFlags(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := progress(cmd)
		defer p.Close()
		o, ev, booted, err := boot(p)
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		name, err := cluster.Supervised(ctx, o, ev)
		booted()
		if err != nil {
			return err
		}
		p.Close()
		if *asJSON {
			r, err := state.Find(name)
			if err != nil {
				return err
			}
			return terminal.PrintJSON(cmd.OutOrStdout(), r)
		}
		fmt.Fprintln(cmd.OutOrStdout(), name)
		return nil
	}
	return cmd
}
