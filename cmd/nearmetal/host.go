package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/openstack/hook"
	"nearmetal/internal/host/change"
	_ "nearmetal/internal/host/device" // registers its kinds of changes
	"nearmetal/internal/slurm"
	"nearmetal/internal/terminal"
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

// recovered is the result of host recover.
type recovered struct {
	Undone  []string `json:"undone"`  // changes of this host
	Removed []string `json:"removed"` // remains of jobs
}

func newHostRecoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover [--json]",
		Short: "Undo changes of commands that were killed",
		Long: `Undoes the changes of commands that were killed before their end. Completed
changes (VFs, devices of users) stay until the next reboot. On a host with Slurm
it also removes the VMs, VFs, huge pages and directories of jobs whose epilog
did not run; running jobs are not touched. Run it at boot and in the epilog of
jobs: if there is nothing to undo, it ends at once.`,
		Example: "  nearmetal host recover",
		Args:    noArgs,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		undone, err := change.Recover(change.Dir)
		err = errors.Join(err, change.Check(change.Dir))
		var removed []string
		if os.Geteuid() == 0 { // only root stores state for jobs
			state, bad := slurm.StateFolder()
			if state != "" {
				jobs, more, e := slurm.Sweep{State: state}.Run(cmd.Context())
				removed, undone, bad = jobs, append(undone, more...), errors.Join(bad, e)
			}
			_, lost := hook.Host.Sweep()
			err = errors.Join(err, bad, lost)
		}
		if !*asJSON {
			sayRemoved(cmd, removed)
			sayUndone(cmd, undone)
			return err
		}
		r := recovered{Undone: []string{}, Removed: append([]string{}, removed...)}
		for _, c := range undone {
			r.Undone = append(r.Undone, c.String())
		}
		return errors.Join(terminal.PrintJSON(cmd.OutOrStdout(), r), err)
	}
	return cmd
}
