package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/job"
)

func newCpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cp FROM TO",
		GroupID: groupCluster,
		Short:   "Copy files between this host and a VM",
		Long: `Copies a file, or a directory with all in it, between this host and a VM, as
the caller. One of the two is NAME:PATH, in the first VM of a cluster, or
NAME/VM:PATH, with an absolute path. VM:PATH is in a VM of $NEARMETAL_CLUSTER,
or of the only cluster that runs, unless a cluster has that name. The other is a
path on this host (one with a colon begins with ./ or /). If TO is a directory,
the copy is made in it.`,
		Example: `  nearmetal cp input.dat demo:/tmp/
  nearmetal cp -c demo src vm1:/tmp/
  nearmetal cp demo/vm1:/tmp/results .`,
		Args:              exactArgs("FROM", "TO"),
		ValidArgsFunction: completePlace,
	}
	name := addClusterNameFlag(cmd)
	cmd.Flags().BoolP("recursive", "r", true, "copy directories, which it always does")
	cmd.Flags().Lookup("recursive").Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to := job.ParsePlace(args[0]), job.ParsePlace(args[1])
		if (from.VM == "") == (to.VM == "") {
			if from.VM == "" {
				return usagef("cp: neither %s nor %s is in a VM: write one of them as NAME:PATH or NAME/VM:PATH", args[0], args[1])
			}
			return usagef("cp: exactly one of FROM and TO may be in a VM: copy %s to this host first", args[0])
		}
		if in := from.Cluster + to.Cluster; in != "" && *name != "" && in != *name {
			return usagef("%s and -c %s name two clusters: leave one out", in, *name)
		}
		p := progress(cmd)
		defer p.Close()
		step := p.Start("copying " + args[0])
		defer step.Done()
		ctx, stop := interruptible()
		defer stop()
		return job.Copy(ctx, *name, from, to)
	}
	return cmd
}
