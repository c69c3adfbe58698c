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
the caller. One of the two is [NAME/]VM:PATH with an absolute path, the other a
path on this host (one with a colon begins with ./ or /). If TO is a directory,
the copy is made in it.`,
		Example: `  nearmetal cp input.dat vm0:/tmp/
  nearmetal cp demo/vm1:/tmp/results .`,
		Args:              exactArgs("FROM", "TO"),
		ValidArgsFunction: completePlace,
	}
	name := addClusterNameFlag(cmd)
	cmd.Flags().BoolP("recursive", "r", true, "copy directories, which it always does")
	cmd.Flags().Lookup("recursive").Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to := job.ParsePlace(args[0]), job.ParsePlace(args[1])
		if in := from.Cluster + to.Cluster; from.Cluster == "" || to.Cluster == "" {
			if in != "" && *name != "" && in != *name {
				return usagef("%s and -c %s name two clusters: leave one out", in, *name)
			}
			if in != "" {
				*name = in
			}
		}
		if (from.VM == "") == (to.VM == "") {
			if from.VM == "" {
				return usagef("neither %s nor %s is VM:PATH: one of the two has to be in a VM", args[0], args[1])
			}
			return usagef("%s and %s are both in VMs: copy to this host first", args[0], args[1])
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
