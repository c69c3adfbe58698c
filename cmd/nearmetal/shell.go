package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/job"
)

func newShellCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "shell [NAME[/VM]] [--host]",
		GroupID: groupCluster,
		Short:   "Open a shell in a VM, or on the host with the VMs behind mpirun",
		Long: `Opens a login shell in a VM, with a terminal of its own. With --host the shell
runs on this host, and any mpirun or mpiexec started in it puts its ranks into
the VMs (see nearmetal env). The exit status is the shell's, or 125 if nearmetal
itself failed.`,
		Example: `  nearmetal shell
  nearmetal shell demo/vm1
  nearmetal shell --host`,
		Args:              rangeArgs(0, "NAME[/VM]"),
		ValidArgsFunction: completeTarget,
	}
	vm := addVMFlag(cmd, "to run in")
	host := cmd.Flags().Bool("host", false, "a shell on this host, whose MPI launchers reach into the VMs")
	root := cmd.Flags().Bool("as-root", false, "be root of the VM")
	exclude(cmd, "as-root", "host")
	exclude(cmd, "vm", "host")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := vmTarget(args, *vm)
		if err != nil {
			return err
		}
		if *host && t.VM != "" {
			return usagef("--host is a shell on this host: leave out the VM %s", t.VM)
		}
		o := job.ExecOptions{Cluster: t.Cluster, VM: t.VM, Root: *root}
		var code int
		if *host {
			code, err = job.HostShell(o, streams(cmd))
		} else {
			code, err = job.Shell(o, streams(cmd))
		}
		if err != nil {
			return err
		}
		return exitStatus(code)
	}
	return cmd
}
