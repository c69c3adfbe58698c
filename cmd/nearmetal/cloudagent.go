package main

import (
	"errors"
	"net"
	"os/exec"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/carry"
	"nearmetal/internal/guest/image"
)

// newCloudAgentCommand returns the command that cloud-init starts as root in a server of a cluster (docs/openstack.md).
func newCloudAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cloud-agent FILE",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Be the agent of a cluster's VM in a cloud (started by cloud-init)",
		Example: "  nearmetal up --on 'openstack:CLOUD?flavor=hpc.16&image=rocky&network=private'",
		Args:    exactArgs("FILE"),
	}
	stay := cmd.Flags().Bool("stay", false, "do not power the VM off in the end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible()
		defer stop()
		if err := asRoot("cloud-agent"); err != nil {
			return err
		}
		s, err := carry.ReadSettings(args[0])
		if err != nil {
			return err
		}
		program, err := image.Agent()
		if err == nil {
			err = carry.PutAgent(state.VMDir, state.VMAgent, program)
		}
		if err == nil {
			err = carry.AddHosts("/etc/hosts", s.Hosts())
		}
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", s.Listen)
		if err != nil {
			return err
		}
		conn, err := carry.Accept(ctx, l, s.Secret)
		if err != nil {
			return err
		}
		err = carry.Run(ctx, program, s.Name, conn)
		if *stay {
			return err
		}
		// The owner is gone, or has ended the cluster.
		return errors.Join(err, exec.Command("systemctl", "poweroff").Run())
	}
	return cmd
}
