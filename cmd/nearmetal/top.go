package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/job"
	"nearmetal/internal/load"
	"nearmetal/internal/terminal"
	"nearmetal/internal/words"
)

func newTopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top [NAME] [--json|--openmetrics]",
		GroupID: groupCluster,
		Short:   "Show what VMs take of their host, live",
		Long: `Shows the VMs of the user's clusters, or of one, and what each takes of its
host, once an interval: CPUs that its vCPUs use (2.0 is the time of two), CPUs
that they wait for since others have them (steal, as the host sees it), CPUs of
QEMU's other threads, memory in ordinary and in huge pages, exits a second where
KVM's statistics may be read (root, /sys/kernel/debug), and bytes a second that
QEMU reads and writes, of shared file systems above all.

RANKS are those that use the region which the cluster's VMs share, LINES/S how
many lines of 64 bytes they read from it: a short message is one, a piece of a
large one, too. Where VMs have virtual functions, VF-IN/S and VF-OUT/S are bytes
a second, as far as their card's driver counts them for the host. Columns of
what no VM has are left out.

None of this asks a VM. --inside does: each VM counts what goes over its network
interfaces, and over its RDMA devices, virtual functions among them.

--nodes shows on which NUMA nodes of the host the memory lies, and what of the
region the VM has touched. For that the kernel walks all pages of the VM, which
holds it up: take a long --interval with it.

Without a terminal, and with --count, it shows that many intervals. --json and
--openmetrics print what was taken since the VMs' start, once.`,
		Example: `  nearmetal top
  nearmetal top demo --interval 5s
  nearmetal top demo --inside
  nearmetal top --nodes --interval 30s
  nearmetal top --openmetrics >/var/lib/node_exporter/nearmetal.prom`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	interval := span(time.Second)
	cmd.Flags().Var(&interval, "interval", "time between two readings")
	count := cmd.Flags().Int("count", 0, "`N` intervals, then the end (default until Ctrl-C, without a terminal 1)")
	var more job.Extras
	cmd.Flags().BoolVar(&more.Inside, "inside", false, "ask the VMs what goes over their network interfaces and RDMA devices")
	cmd.Flags().BoolVar(&more.Nodes, "nodes", false, "show memory by NUMA node, and of the region")
	asJSON := addJSONFlag(cmd)
	metrics := cmd.Flags().Bool("openmetrics", false, "print OpenMetrics text, for node_exporter's textfile collector")
	exclude(cmd, "json", "openmetrics")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := clusterTarget(cmd, firstArg(args))
		if err != nil {
			return err
		}
		if *count < 0 {
			return usagef("--count: %d is less than 0", *count)
		}
		out := cmd.OutOrStdout()
		now, err := job.Usage(cmd.Context(), name, more)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return terminal.PrintJSON(out, now)
		case *metrics:
			return load.OpenMetrics(out, now)
		}
		live := terminal.IsTerminal(out)
		if *count == 0 && !live {
			*count = 1
		}
		ctx, stop := interruptible()
		defer stop()
		at := time.Now()
		return watch(ctx, out, time.Duration(interval), *count, func(w io.Writer) error {
			then, before := now, at
			if now, err = job.Usage(ctx, name, more); err != nil {
				return err
			}
			at = time.Now()
			return topTable(now, then, at.Sub(before), more).Print(w)
		})
	}
	return cmd
}

// topTable shows the resources that VMs used between two readings.
func topTable(now, then []load.VM, passed time.Duration, more job.Extras) *terminal.Table {
	earlier := map[string]*load.VM{}
	for i := range then {
		earlier[then[i].Cluster+"/"+then[i].Name] = &then[i]
	}
	// Columns that no VM has a value for are left out: the rest should fit a terminal.
	huge := slices.ContainsFunc(now, func(v load.VM) bool { return v.HugeBytes != 0 })
	shared := slices.ContainsFunc(now, func(v load.VM) bool { return v.Region != nil })
	functions := slices.ContainsFunc(now, func(v load.VM) bool { return v.Functions != nil })
	exits := slices.ContainsFunc(now, func(v load.VM) bool { return v.Exits != nil })
	rdma := slices.ContainsFunc(now, func(v load.VM) bool { _, _, any := v.Carried(true); return any })
	titles := []string{"vm", "state", "vcpus", "used", "wait", "other", "memory"}
	add := func(shown bool, more ...string) {
		if shown {
			titles = append(titles, more...)
		}
	}
	add(huge, "huge")
	add(shared, "ranks", "lines/s")
	add(functions, "vf-in/s", "vf-out/s")
	add(more.Inside, "net-in/s", "net-out/s")
	add(rdma, "rdma-in/s", "rdma-out/s")
	add(exits, "exits/s")
	add(true, "read/s", "written/s")
	add(more.Nodes, "nodes", "region")
	t := terminal.NewTable(titles...)
	for i := range now {
		v := &now[i]
		name := v.Cluster + "/" + v.Name
		old := earlier[name]
		if old == nil {
			old = v // it is new: its last interval is not known
		}
		r := v.Since(old, passed)
		row := []any{name, v.State, v.VCPUs, fmt.Sprintf("%.2f", r.VCPU), fmt.Sprintf("%.2f", r.Wait), fmt.Sprintf("%.2f", r.Other),
			words.Bytes(v.ResidentBytes)}
		if huge {
			row = append(row, words.Bytes(v.HugeBytes))
		}
		if shared {
			ranks := ""
			if v.Region != nil {
				ranks = fmt.Sprint(v.Region.Ranks)
			}
			row = append(row, ranks, perSecond(r.Lines, plainCount))
		}
		if functions {
			row = append(row, perSecond(r.FunctionsIn, words.Bytes), perSecond(r.FunctionsOut, words.Bytes))
		}
		if more.Inside {
			row = append(row, perSecond(r.NetIn, words.Bytes), perSecond(r.NetOut, words.Bytes))
		}
		if rdma {
			row = append(row, perSecond(r.RDMAIn, words.Bytes), perSecond(r.RDMAOut, words.Bytes))
		}
		if exits {
			row = append(row, perSecond(r.Exits, plainCount))
		}
		row = append(row, perSecond(r.Read, words.Bytes), perSecond(r.Written, words.Bytes))
		if more.Nodes {
			region := ""
			if v.RegionBytes != nil {
				region = words.Bytes(*v.RegionBytes)
			}
			row = append(row, byNode(v.Nodes), region)
		}
		t.Row(row...)
	}
	return t
}

// plainCount formats a count in full.
func plainCount(n uint64) string { return fmt.Sprint(n) }

// perSecond formats a rate, or returns "" if it is not known.
func perSecond(rate float64, write func(uint64) string) string {
	if rate < 0 {
		return ""
	}
	return write(uint64(rate + 0.5))
}

// byNode formats memory of NUMA nodes as NODE:BYTES.
func byNode(nodes []load.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%d:%s", n.Node, words.Bytes(n.Bytes)))
	}
	return strings.Join(list, " ")
}

// watch prints the output of show again at each interval, n times (0: until ctx ends). On a terminal each replaces the
// one before.
func watch(ctx context.Context, out io.Writer, interval time.Duration, n int, show func(io.Writer) error) error {
	const home = "\x1b[H\x1b[J"
	live := terminal.IsTerminal(out)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; n == 0 || i < n; i++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		var b bytes.Buffer
		if err := show(&b); err != nil {
			return err
		}
		text := b.String()
		if live {
			text = home + terminal.Screen(out, text)
		} else if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}
