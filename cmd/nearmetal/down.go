package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/job"
)

func newDownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "down [NAME...] [--all]",
		GroupID: groupCluster,
		Short:   "End clusters",
		Long: `Ends clusters: programs are killed, shares written back, VMs powered off, and
everything that was made for them is removed. Without a name it ends
$NEARMETAL_CLUSTER, or the only cluster that runs.`,
		Example: `  nearmetal down
  nearmetal down demo
  nearmetal down --all`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeClusters(cmd, args, typed)
		},
	}
	all := cmd.Flags().Bool("all", false, "end all of the user's clusters")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		if *all && len(args) > 0 {
			return usagef("give names or --all, not both")
		}
		for i, name := range args { // all of them before one ends
			var err error
			if args[i], err = clusterTarget(cmd, name); err != nil {
				return err
			}
		}
		if err := sweep(p); err != nil {
			return err
		}
		if *all {
			list, err := cluster.List()
			if err != nil {
				return err
			}
			for _, r := range list {
				if r.State != cluster.Dead {
					args = append(args, r.Name)
				}
			}
		} else if len(args) == 0 {
			args = []string{""}
		}
		ctx, stop := interruptible()
		defer stop()
		var failed errorList
		for _, name := range args {
			c, err := cluster.Connect(ctx, name)
			if err == nil {
				for _, line := range job.Lost(c) {
					p.Printf("%s", line)
				}
				step := p.Start("ending " + c.Record.Name)
				err = c.Down(ctx)
				step.Done()
				c.Close()
			}
			if err != nil {
				failed = append(failed, err)
			}
		}
		if failed != nil {
			return failed
		}
		return nil
	}
	return cmd
}
