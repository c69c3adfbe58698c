package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/hugepage"
	"nearmetal/internal/slurm/node"
)

// newSlurmPagesCommand returns the command that the plugin's prolog and epilog run as root.
func newSlurmPagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-pages keep|return",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Keep huge pages for a Slurm job, and give them back (started by the SPANK plugin)",
		Example: "  srun --vm --vm-pages=2MiB grep Huge /proc/meminfo",
	}
	var root string
	var job hugepage.Job
	var a node.Allocation
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&root, "root", "", "a directory with sys and var in it, instead of this host")
		c.Flags().StringVar(&job.Name, "job", "", "`JOB.NODE`")
		c.Flags().StringVar(&job.State, "state", "/run/nearmetal-slurm", "the plugin's directory of running jobs")
		return c
	}
	keep := flags(&cobra.Command{
		Use:     "keep [flags] -- REQUEST",
		Short:   "Keep the huge pages that a job's VMs take",
		Example: `  nearmetal slurm-pages keep --job 7.n1 -- "1 pages=2MiB"`,
		Args:    rangeArgs(1, "REQUEST"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := node.ParseRequest(args[0])
			if err != nil {
				return err
			}
			id, host, _ := strings.Cut(job.Name, ".")
			if a.Cores, a.Bytes, err = node.Given(id, host); err != nil {
				return err
			}
			a.Node = host
			needs, err := node.Pages(r, a)
			if err != nil || len(needs) == 0 {
				return err
			}
			return hugepage.Keep(root, job, needs)
		},
	})
	keep.Flags().StringVar(&a.Accel, "accel", "auto", "the site's choice of auto, kvm or tcg")
	back := flags(&cobra.Command{
		Use:     "return [flags]",
		Short:   "Give a job's huge pages back; and those of all whose directories are gone",
		Example: "  nearmetal slurm-pages return --job 7.n1",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := hugepage.Return(root, job)
			return err
		},
	})
	cmd.AddCommand(keep, back)
	return cmd
}
