package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/change"
	_ "nearmetal/internal/host/device" // its kinds of changes
	"nearmetal/internal/host/novaregion"
	"nearmetal/internal/slurm"
)

func newHostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "host COMMAND",
		GroupID: groupHost,
		Short:   "Look after what nearmetal changed of this host",
		Long: `nearmetal writes each change to a host down in /var/lib/nearmetal before it is
made. recover undoes what a kill, a crash or a reboot left half done.`,
		Example: "  nearmetal host recover\n  sudo nearmetal host openstack-region status",
	}
	cmd.AddCommand(newHostRecoverCommand(), newOpenStackRegionCommand())
	return cmd
}

func newHostRecoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Undo what was left half done",
		Long: `Undoes the changes of commands that were killed before their end. What ended
well (VFs that were made, devices handed to users) stays; a reboot takes that
along. On a host with Slurm it also removes what jobs have left whose epilog did
not run: VMs, VFs, huge pages, folders. A job that runs is left alone. Run it at
boot and in the epilog of jobs: where nothing is to be done it is quick.`,
		Example: "  nearmetal host recover",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		did, err := change.Recover(change.Dir)
		sayUndone(cmd, did)
		err = errors.Join(err, change.Check(change.Dir))
		if os.Geteuid() != 0 {
			return err // only root has kept anything for jobs
		}
		state, bad := slurm.StateFolder()
		if state != "" {
			bad = errors.Join(bad, sweepJobs(cmd, slurm.Sweep{State: state}))
		}
		_, lost := novaregion.Host.Sweep()
		return errors.Join(err, bad, lost)
	}
	return cmd
}
