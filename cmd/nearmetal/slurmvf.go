package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/device"
	"nearmetal/internal/slurm"
	"nearmetal/internal/text"
)

// exitHeld is the status of slurm-vf lease if a process still has a VF open: slurm/vf.c does not drain the host.
const exitHeld = 4

// newSlurmVFCommand returns the command that the plugin's prolog and epilog run as root.
func newSlurmVFCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-vf lease|return",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Hand the VFs of a Slurm job to its user, and back (started by the SPANK plugin)",
		Example: "  srun --vm --vm-vf=1 lspci",
	}
	var l slurm.LeaseRequest
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&l.Root, "root", "", "a directory with sys, dev, run and var in it, instead of this host")
		c.Flags().StringVar(&l.State, "state", slurm.DefaultState, "the plugin's directory of running jobs")
		c.Flags().StringVar(&l.Job, "job", "", "`JOB.NODE`")
		return c
	}
	lease := flags(&cobra.Command{
		Use:     "lease [flags]",
		Short:   "Hand a job's VFs to its user and print their addresses",
		Example: `  nearmetal slurm-vf lease --job 7.n1 --node n1 --uid 1000 --gres "vf:1(IDX:0)"`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := os.Getenv("SLURM_CONF")
			if conf == "" {
				conf = "/etc/slurm/slurm.conf"
			}
			l.Conf = filepath.Dir(conf)
			list, notes, err := slurm.Lease(cmd.Context(), l)
			for _, at := range list {
				fmt.Fprintln(cmd.OutOrStdout(), at)
			}
			// The plugin reads one stream: lines with a # are for the log.
			for _, note := range notes {
				fmt.Fprintln(cmd.OutOrStdout(), "# "+text.Clean(note))
			}
			if errors.As(err, new(*device.HeldError)) {
				return &ExitError{Code: exitHeld, Err: err}
			}
			return err
		},
	})
	lease.Flags().StringVar(&l.Node, "node", "", "Slurm's `NAME` of this node")
	lease.Flags().StringVar(&l.Detail, "gres", "", "the job's GRES on this node, as scontrol show job -d has them")
	lease.Flags().IntVar(&l.UID, "uid", 0, "the job's user")
	lease.Flags().IntVar(&l.GID, "gid", 0, "the job's group")
	back := flags(&cobra.Command{
		Use:     "return [flags]",
		Short:   "Take a job's VFs back; without --job those of all that have ended",
		Example: "  nearmetal slurm-vf return --job 7.n1",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return slurm.Return(l.Root, l.Job, l.State)
		},
	})
	cmd.AddCommand(lease, back)
	return cmd
}
