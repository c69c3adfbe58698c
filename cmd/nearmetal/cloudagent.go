package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/carry"
	"nearmetal/internal/guest/image"
)

// newCloudAgentCommand is what cloud-init starts as root in a server of a cluster (docs/openstack.md).
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
			err = putAgent(program)
		}
		if err == nil {
			err = addHosts(s.Hosts())
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

// putAgent puts the agent where launchers in the VM look for the remote shell.
func putAgent(program []byte) error {
	if err := executable(state.VMDir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(state.VMAgent), 0o755); err != nil {
		return err
	}
	return os.WriteFile(state.VMAgent, program, 0o755)
}

// executable makes a folder in which programs may be started: Debian's initramfs mounts /run with noexec.
func executable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("no program may be started in %s, and mounting a file system there: %w", dir, err)
	}
	return nil
}

// addHosts adds the cluster's VMs to /etc/hosts.
func addHosts(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	f, err := os.OpenFile("/etc/hosts", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "# nearmetal's cluster\n%s\n", strings.Join(lines, "\n"))
	return errors.Join(err, f.Close())
}
