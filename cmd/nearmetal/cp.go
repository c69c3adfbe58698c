package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/job"
)

func newCpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cp [-c NAME] FROM TO",
		GroupID: groupCluster,
		Short:   "Copy files between this host and a VM",
		Long: `Copies a file, or a directory with all in it, between this host and a VM, as
the caller. One of the two is VM:PATH with an absolute path, the other a path on
this host. If TO is a directory, the copy is made in it.`,
		Example: `  nearmetal cp input.dat vm0:/tmp/
  nearmetal cp vm1:/tmp/result.dat .`,
		Args: exactArgs("FROM", "TO"),
	}
	name := addClusterNameFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to := job.ParsePlace(args[0]), job.ParsePlace(args[1])
		if (from.VM == "") == (to.VM == "") {
			return usagef("one of FROM and TO must be VM:PATH")
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
