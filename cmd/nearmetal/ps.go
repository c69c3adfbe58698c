package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newPsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ps [NAME[/VM]] [--devices] [--watch] [--json]",
		GroupID: groupCluster,
		Short:   "List clusters, or the VMs of one",
		Long: `Lists the user's clusters; with a name, the VMs of that one and how messages
travel between them; with --devices the VMs' devices as they see them: functions
of the host passed through, and soft RoCE. A cluster is
degraded if some of its VMs have ended, and silent if a VM does not answer
within 3 seconds.
--json prints the whole record of each, with its plan.`,
		Example:           "  nearmetal ps\n  nearmetal ps demo\n  nearmetal ps --watch\n  nearmetal ps --devices\n  nearmetal ps --json",
		Args:              rangeArgs(0, "NAME[/VM]"),
		ValidArgsFunction: completeTarget,
	}
	devices := cmd.Flags().Bool("devices", false, "show the VMs' devices: driver, addresses, state")
	asJSON := addJSONFlag(cmd)
	again := cmd.Flags().Bool("watch", false, "refresh every second, until Ctrl-C")
	exclude(cmd, "watch", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		if err := sweep(p); err != nil {
			return err
		}
		show := func(w io.Writer) error { return showClusters(w, args, *devices, *asJSON) }
		if !*again {
			return show(cmd.OutOrStdout())
		}
		ctx, stop := interruptible()
		defer stop()
		return watch(ctx, cmd.OutOrStdout(), time.Second, 0, show)
	}
	return cmd
}

// showClusters writes the output of ps: all clusters, or the cluster or the VM that args name.
func showClusters(w io.Writer, args []string, devices, asJSON bool) error {
	if len(args) == 1 {
		t := job.ParseTarget(args[0])
		r, err := state.Find(t.Cluster)
		if err != nil {
			return err
		}
		if t.VM != "" {
			if t.VM, err = r.FindVM(t.VM); err != nil {
				return err
			}
			r.VMs = slices.DeleteFunc(r.VMs, func(v state.VMRecord) bool { return v.Name != t.VM })
		}
		one := []state.Record{*r}
		job.MarkSilent(one)
		r = &one[0]
		if asJSON {
			return terminal.PrintJSON(w, r)
		}
		if devices {
			return deviceTable(one).Print(w)
		}
		return printVMs(w, r)
	}
	list, err := state.List()
	if err != nil {
		return err
	}
	job.MarkSilent(list)
	if asJSON {
		if list == nil {
			list = []state.Record{}
		}
		return terminal.PrintJSON(w, list)
	}
	if devices {
		return deviceTable(list).Print(w)
	}
	return clusterTable(list).Print(w)
}

// clusterTable has a row for each cluster. VMs that have ended are shown as such, and count for neither CPUs nor
// memory.
func clusterTable(list []state.Record) *terminal.Table {
	t := terminal.NewTable("name", "state", "vms", "vcpus", "memory", "accel", "backend", "age", "command")
	for i := range list {
		r := &list[i]
		vcpus, memory := 0, uint64(0)
		for _, v := range r.VMs {
			if v.State != state.Dead {
				vcpus += v.VCPUs
				memory += v.MemoryBytes
			}
		}
		vms := fmt.Sprint(len(r.VMs))
		if n := r.Running(); r.State == state.Ready && n < len(r.VMs) {
			vms = fmt.Sprintf("%d of %d", n, len(r.VMs))
		}
		t.Row(r.Name, stateOf(r), vms, vcpus, spec.Size(memory), r.Accel, r.Backend, age(r.Created), r.Command)
	}
	return t
}

// stateOf returns the state of a cluster for people: in addition to its own states, degraded and paused.
func stateOf(r *state.Record) string {
	switch {
	case r.Paused:
		return "paused"
	case r.State == state.Ready && r.Running() < len(r.VMs):
		return "degraded"
	case slices.ContainsFunc(r.VMs, func(v state.VMRecord) bool { return v.State == state.Silent }):
		return string(state.Silent)
	}
	return string(r.State)
}

// printVMs shows the VMs of a cluster, and below them why some have ended.
func printVMs(w io.Writer, r *state.Record) error {
	if err := vmTable(r).Print(w); err != nil {
		return err
	}
	for _, way := range r.Ways() {
		if _, err := fmt.Fprintln(w, text.Clean(way.String())); err != nil {
			return err
		}
	}
	for _, v := range r.VMs {
		if v.Ended == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\nconsole: nearmetal logs %s/%s\n", text.Clean(v.Ended), r.Name, v.Name); err != nil {
			return err
		}
		if r.Restartable && r.Running() > 0 {
			if _, err := fmt.Fprintf(w, "start it again: nearmetal restart %s/%s\n", r.Name, v.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func vmTable(r *state.Record) *terminal.Table {
	headings := []string{"vm", "state", "vcpus", "memory", "ip", "pid", "boot"}
	if len(r.Remote) > 0 { // the PIDs of another host mean nothing here
		headings[5] = "host"
	}
	t := terminal.NewTable(headings...)
	for _, v := range r.VMs {
		pid, boot := any(""), ""
		if v.PID != 0 {
			pid = v.PID
		}
		if len(r.Remote) > 0 {
			pid = v.Host
		}
		if v.ReadyNs != 0 {
			boot = time.Duration(v.ReadyNs).Round(10 * time.Millisecond).String()
		}
		shown := string(v.State)
		if r.Paused && v.State == state.Ready {
			shown = "paused"
		}
		t.Row(v.Name, shown, v.VCPUs, spec.Size(v.MemoryBytes), v.IP, pid, boot)
	}
	return t
}

// deviceTable shows the devices that the VMs' agents reported.
func deviceTable(list []state.Record) *terminal.Table {
	t := terminal.NewTable("cluster", "vm", "device", "driver", "interface", "mac", "rdma", "guid", "state", "ip", "link", "gid", "node", "mtu")
	for _, r := range list {
		for _, v := range r.VMs {
			for _, d := range v.Devices {
				name := d.PCI
				if name == "" {
					name = d.Kind
				}
				t.Row(r.Name, v.Name, name, d.Driver, d.Net, d.MAC, d.RDMA, d.GUID, d.State, d.IP, d.Layer, d.GID, d.Node, d.MTU)
			}
		}
	}
	return t
}
