package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/hugepage"
	"nearmetal/internal/slurm/node"
	"nearmetal/internal/spec"
)

// newSlurmPagesCommand is what the plugin's prolog and epilog run as root.
func newSlurmPagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-pages keep|return",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Keep huge pages for a Slurm job, and give them back (started by the SPANK plugin)",
		Example: "  srun --vm --vm-pages=2MiB grep Huge /proc/meminfo",
	}
	var root, cpus string
	var job hugepage.Job
	var threads int
	var limit spec.Size
	var a node.Allocation
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&root, "root", "", "a folder with sys and var in it, instead of this host")
		c.Flags().StringVar(&job.Name, "job", "", "`JOB.NODE`")
		c.Flags().StringVar(&job.State, "state", "/run/nearmetal-slurm", "the plugin's folder of running jobs")
		return c
	}
	keep := flags(&cobra.Command{
		Use:     "keep [flags] -- REQUEST",
		Short:   "Keep the huge pages that a job's VMs take",
		Example: `  nearmetal slurm-pages keep --job 7.n1 --cpus 0-3 -- "1 pages=2MiB"`,
		Args:    rangeArgs(1, "REQUEST"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := node.ParseRequest(args[0])
			if err != nil {
				return err
			}
			if a.Cores, err = node.CoresOf(cpus, threads); err != nil {
				return err
			}
			a.Bytes = uint64(limit)
			_, a.Node, _ = strings.Cut(job.Name, ".")
			needs, err := node.Pages(r, a)
			if err != nil || len(needs) == 0 {
				return err
			}
			return hugepage.Keep(root, job, needs)
		},
	})
	keep.Flags().StringVar(&cpus, "cpus", "", "Slurm's `LIST` of the job's CPUs on this node")
	keep.Flags().IntVar(&threads, "threads", 1, "threads of a core, as Slurm counts CPUs")
	keep.Flags().Var(&limit, "memory-limit", "the job's memory on this node; 0: not limited")
	keep.Flags().StringVar(&a.Accel, "accel", "auto", "the site's choice of auto, kvm or tcg")
	back := flags(&cobra.Command{
		Use:     "return [flags]",
		Short:   "Give a job's huge pages back; and those of all whose folders are gone",
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
