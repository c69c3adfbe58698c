package main

import (
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
)

func newPsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ps [NAME] [--devices] [--json]",
		GroupID: groupCluster,
		Short:   "List clusters, or the VMs of one",
		Long: `Lists the user's clusters; with a name, the VMs of that one; with --devices the
VMs' devices as they see them: functions of the host passed through, and soft
RoCE. --json prints the whole record of each, with its plan.`,
		Example:           "  nearmetal ps\n  nearmetal ps demo\n  nearmetal ps --devices\n  nearmetal ps --json",
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	devices := cmd.Flags().Bool("devices", false, "show the VMs' devices: driver, addresses, state")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		if err := sweep(p); err != nil {
			return err
		}
		if len(args) == 1 {
			r, err := cluster.Find(args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return terminal.PrintJSON(cmd.OutOrStdout(), r)
			}
			if *devices {
				return deviceTable([]cluster.Record{*r}).Print(cmd.OutOrStdout())
			}
			return vmTable(r).Print(cmd.OutOrStdout())
		}
		list, err := cluster.List()
		if err != nil {
			return err
		}
		if *asJSON {
			if list == nil {
				list = []cluster.Record{}
			}
			return terminal.PrintJSON(cmd.OutOrStdout(), list)
		}
		if *devices {
			return deviceTable(list).Print(cmd.OutOrStdout())
		}
		t := terminal.NewTable("name", "state", "vms", "vcpus", "memory", "accel", "age", "command")
		for _, r := range list {
			vcpus, memory := 0, uint64(0)
			for _, v := range r.VMs {
				vcpus += v.VCPUs
				memory += v.MemoryBytes
			}
			t.Row(r.Name, r.State, len(r.VMs), vcpus, spec.Size(memory), r.Accel, age(r.Created), r.Command)
		}
		return t.Print(cmd.OutOrStdout())
	}
	return cmd
}

func vmTable(r *cluster.Record) *terminal.Table {
	t := terminal.NewTable("vm", "state", "vcpus", "memory", "ip", "pid", "boot")
	for _, v := range r.VMs {
		pid, boot := any(""), ""
		if v.PID != 0 {
			pid = v.PID
		}
		if v.ReadyNs != 0 {
			boot = time.Duration(v.ReadyNs).Round(10 * time.Millisecond).String()
		}
		t.Row(v.Name, v.State, v.VCPUs, spec.Size(v.MemoryBytes), v.IP, pid, boot)
	}
	return t
}

// deviceTable shows the devices that the VMs' agents told of.
func deviceTable(list []cluster.Record) *terminal.Table {
	t := terminal.NewTable("cluster", "vm", "device", "driver", "interface", "mac", "rdma", "guid", "state", "ip")
	for _, r := range list {
		for _, v := range r.VMs {
			for _, d := range v.Devices {
				name := d.PCI
				if name == "" {
					name = d.Kind
				}
				t.Row(r.Name, v.Name, name, d.Driver, d.Net, d.MAC, d.RDMA, d.GUID, d.State, d.IP)
			}
		}
	}
	return t
}
