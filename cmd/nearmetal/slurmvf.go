package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm"
)

// newSlurmVFCommand is what the plugin's prolog and epilog run as root.
func newSlurmVFCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-vf lend|return",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Hand the VFs of a Slurm job to its user, and back (started by the SPANK plugin)",
		Example: "  srun --vm --vm-vf=1 lspci",
	}
	var l slurm.Lending
	var state string
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&l.Root, "root", "", "a folder with sys, dev, run and var in it, instead of this host")
		c.Flags().StringVar(&l.Job, "job", "", "`JOB.NODE`")
		return c
	}
	lend := flags(&cobra.Command{
		Use:     "lend [flags]",
		Short:   "Hand a job's VFs to its user and print their addresses",
		Example: `  nearmetal slurm-vf lend --job 7.n1 --node n1 --uid 1000 --gres "vf:1(IDX:0)"`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := os.Getenv("SLURM_CONF")
			if conf == "" {
				conf = "/etc/slurm/slurm.conf"
			}
			l.Gres = filepath.Join(filepath.Dir(conf), "gres.conf")
			list, err := slurm.Lend(cmd.Context(), l)
			for _, at := range list {
				fmt.Fprintln(cmd.OutOrStdout(), at)
			}
			return err
		},
	})
	lend.Flags().StringVar(&l.Node, "node", "", "Slurm's `NAME` of this node")
	lend.Flags().StringVar(&l.Detail, "gres", "", "the job's GRES on this node, as scontrol show job -d has them")
	lend.Flags().IntVar(&l.UID, "uid", 0, "the job's user")
	lend.Flags().IntVar(&l.GID, "gid", 0, "the job's group")
	back := flags(&cobra.Command{
		Use:     "return [flags]",
		Short:   "Take a job's VFs back; without --job those of all that have ended",
		Example: "  nearmetal slurm-vf return --job 7.n1",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if l.Job == "" && state == "" {
				return usagef("--job or --state is needed")
			}
			return slurm.Return(l.Root, l.Job, state)
		},
	})
	back.Flags().StringVar(&state, "state", "", "the plugin's folder of running jobs")
	cmd.AddCommand(lend, back)
	return cmd
}
