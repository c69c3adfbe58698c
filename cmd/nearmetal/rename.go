package main

import (
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/spec"
)

func newRenameCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rename NAME NEW",
		GroupID: groupCluster,
		Short:   "Change the name of a cluster",
		Long: `Changes the name of a cluster of nearmetal up. Its VMs and what runs in them
notice nothing. A shell that has evaluated nearmetal env has the old name in its
variables: evaluate it again. Clusters of nearmetal run and of a job of Slurm
keep their names, and so do those with isolation: strict.`,
		Example:           "  nearmetal rename zinc-4f1e demo\n  eval $(nearmetal env demo)",
		Args:              exactArgs("NAME", "NEW"),
		ValidArgsFunction: completeCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := clusterTarget(cmd, args[0])
			if err != nil {
				return err
			}
			if err := spec.CheckName(args[1]); err != nil {
				return usagef("NEW: %v", err)
			}
			ctx, done := interruptible()
			defer done()
			c, err := client.Connect(ctx, name)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Rename(ctx, args[1]); err != nil {
				return err
			}
			if os.Getenv("NEARMETAL_CLUSTER") == c.Record.Name {
				p := progress(cmd)
				defer p.Close()
				p.Printf("this shell still has the name %s: eval $(nearmetal env %s)", c.Record.Name, args[1])
			}
			return nil
		},
	}
}
