package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/openstack/hook"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/words"
)

func newOpenStackRegionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "openstack-region COMMAND",
		Short: "Put a region between the VMs that OpenStack starts here",
		Long: `Puts memory that they share between the VMs that an unpatched OpenStack Nova
starts on this compute host, by a hook of libvirt's. A region is for one project
and one group of servers: those whose names are the same up to the last '-' or
'.'. Its size is the flavor's. It is there from the first VM's start to the last
one's end (docs/openstack.md).`,
		Example: `  sudo nearmetal host openstack-region install --flavor hpc.16=64MiB
  sudo nearmetal host openstack-region status`,
	}
	cmd.AddCommand(newRegionInstallCommand(), newRegionStatusCommand(), newRegionRemoveCommand(), newRegionHookCommand(), newRegionPlugCommand())
	return cmd
}

func newRegionInstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install [--flavor NAME=SIZE]...",
		Short: "Install the hook, or change what it does",
		Long: `Installs the hook in /etc/libvirt/hooks/qemu.d, and says whether libvirtd has to
be restarted. Other hooks are not touched. What was changed is in the host's
journal, and remove undoes it.

A flavor with the extra spec nearmetal:region=SIZE has a region where Nova
writes extra specs into a domain's XML. For others say --flavor. Run it again to
change the flavors.`,
		Example: "  sudo nearmetal host openstack-region install --flavor hpc.16=64MiB",
		Args:    noArgs,
	}
	flavors := cmd.Flags().StringArray("flavor", nil, "servers of this flavor have a region, `NAME=SIZE`, a power of two; repeatable")
	connect := cmd.Flags().String("connect", "qemu:///system", "libvirtd's `URI`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := &hook.Config{Version: 1, Connect: *connect, Flavors: map[string]spec.Size{}}
		for _, f := range *flavors {
			i := strings.LastIndexByte(f, '=')
			if i < 1 {
				return usagef("--flavor %q: NAME=SIZE", f)
			}
			var size spec.Size
			err := size.Set(f[i+1:])
			if err == nil {
				err = hook.CheckSize(size)
			}
			if err != nil {
				return usagef("--flavor %s: %v", f[:i], err)
			}
			c.Flavors[f[:i]] = size
		}
		if err := asRoot("host openstack-region install"); err != nil {
			return err
		}
		var err error
		if c.Program, err = os.Executable(); err != nil {
			return err
		}
		if c.Program, err = filepath.EvalSymlinks(c.Program); err != nil {
			return err
		}
		fresh, err := hook.Host.Install(cmd.Context(), c)
		if err != nil {
			return err
		}
		if fresh {
			fmt.Fprintf(cmd.OutOrStdout(), "made %s and %s\n", hook.Host.HookFile, hook.Host.Config)
			fmt.Fprintln(cmd.OutOrStdout(), "restart libvirtd, which looks for hooks when it starts (systemctl restart libvirtd, or virtqemud); VMs stay")
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "changed %s\n", hook.Host.Config)
		}
		return nil
	}
	return cmd
}

func newRegionStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show whether the hook is there, and the regions of this host",
		Long:    "Shows whether the hook is installed and whether libvirtd runs it, the regions of\nthis host, and the VMs that have them. The exit status is 3 if the hook does not\nrun, or a VM did not get its region.",
		Example: "  sudo nearmetal host openstack-region status --json",
		Args:    noArgs,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asRoot("host openstack-region status"); err != nil {
			return err
		}
		s, err := hook.Host.Status(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), s)
		} else {
			err = showRegions(cmd, s)
		}
		if err != nil {
			return err
		}
		for _, r := range s.Regions {
			for _, m := range r.VMs {
				if m.Problem != "" {
					return findings(fmt.Errorf("%s has no region: %s", m.Name, text.Clean(m.Problem)))
				}
			}
		}
		if !s.Active {
			return findings(fmt.Errorf("the hook does not run: %s", text.Clean(s.Advice)))
		}
		return nil
	}
	return cmd
}

func showRegions(cmd *cobra.Command, s *hook.Status) error {
	if s.Active {
		fmt.Fprintln(cmd.OutOrStdout(), "the hook is installed, and libvirtd runs it")
	}
	if len(s.Regions) == 0 {
		return nil
	}
	t := terminal.NewTable("project", "group", "size", "node", "VM", "region")
	for _, r := range s.Regions {
		node := "any"
		if r.Node >= 0 {
			node = fmt.Sprint(r.Node)
		}
		for _, m := range r.VMs {
			has := "starts"
			switch {
			case m.Plugged:
				has = "there"
			case m.Problem != "":
				has = "failed"
			}
			t.Row(r.Project, r.Group, r.Size.String(), node, m.Name, has)
		}
	}
	return t.Print(cmd.OutOrStdout())
}

func newRegionRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove",
		Short:   "Remove the hook",
		Long:    "Removes what install wrote. It refuses while VMs of this host have regions:\nnobody would remove those when the VMs end.",
		Example: "  sudo nearmetal host openstack-region remove",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asRoot("host openstack-region remove"); err != nil {
			return err
		}
		did, err := hook.Host.Remove()
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", words.Count(len(did), "file or directory", "files and directories"))
		}
		return err
	}
	return cmd
}

// newRegionHookCommand returns the command that libvirtd runs through the program that install wrote.
func newRegionHookCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "hook DOMAIN OPERATION PHASE EXTRA",
		Hidden:  true,
		Short:   "Do what an operation on a domain needs (started by libvirtd)",
		Example: "  nearmetal host openstack-region status",
		Args:    exactArgs("DOMAIN", "OPERATION", "PHASE", "EXTRA"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hook.Host.Hook(args[1], cmd.InOrStdin())
		},
	}
}

// newRegionPlugCommand returns the command that the hook starts.
func newRegionPlugCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "plug UUID",
		Hidden:  true,
		Short:   "Plug a region into a domain that has started (started by the hook)",
		Example: "  nearmetal host openstack-region status",
		Args:    exactArgs("UUID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hook.Host.Plug(cmd.Context(), args[0])
		},
	}
}

// asRoot refuses a command that only root may run; how is its command line after nearmetal.
func asRoot(how string) error {
	if os.Geteuid() != 0 {
		return mustBeRoot(how)
	}
	return nil
}
