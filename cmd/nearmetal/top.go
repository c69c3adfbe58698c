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

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/host/device"
	"nearmetal/internal/job"
	"nearmetal/internal/load"
	"nearmetal/internal/terminal"
	"nearmetal/internal/words"
)

// farTime is how long other hosts may take to say what their VMs take.
const farTime = 20 * time.Second

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
	var more extras
	cmd.Flags().BoolVar(&more.inside, "inside", false, "ask the VMs what goes over their network interfaces and RDMA devices")
	cmd.Flags().BoolVar(&more.nodes, "nodes", false, "show memory by NUMA node, and of the region")
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
		now, err := readUsage(cmd.Context(), name, more)
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
			if now, err = readUsage(ctx, name, more); err != nil {
				return err
			}
			at = time.Now()
			return topTable(now, then, at.Sub(before), more).Print(w)
		})
	}
	return cmd
}

// extras are what top shows only where it is asked for it.
type extras struct{ inside, nodes bool }

// readUsage reads what the VMs of the user's clusters take, or of the one called name.
func readUsage(ctx context.Context, name string, more extras) ([]load.VM, error) {
	list, err := state.List()
	if err != nil {
		return nil, err
	}
	if name != "" {
		r, err := state.Find(name)
		if err != nil {
			return nil, err
		}
		list = []state.Record{*r}
	}
	vms := []load.VM{}
	for i := range list {
		r := &list[i]
		own := len(vms)
		switch {
		case r.State == state.Dead:
			continue
		case len(r.Remote) == 0:
			vms = append(vms, r.Usage(more.nodes)...)
			readFunctions(r, vms[own:])
		case name != "" || r.State == state.Ready:
			far, err := usageElsewhere(ctx, r.Name, more.nodes)
			if err != nil && name != "" { // of all clusters one may be ending
				return nil, err
			}
			vms = append(vms, far...)
		}
		if more.inside && !r.Paused {
			readInside(ctx, r, vms[own:])
		}
	}
	return vms, nil
}

// readFunctions adds what the host's cards count of the VMs' virtual functions.
func readFunctions(r *state.Record, vms []load.VM) {
	if r.Plan == nil || len(r.Plan.VMs) != len(vms) {
		return
	}
	var h *device.Host
	for i := range vms {
		for _, d := range r.Plan.VMs[i].Devices {
			if d.PF == "" {
				continue
			}
			if h == nil {
				var err error
				if h, err = device.Open("", 0); err != nil {
					return
				}
			}
			if in, out, err := h.Carried(d.Address); err == nil {
				vms[i].Functions = append(vms[i].Functions, load.Function{Address: d.Address, Received: in, Sent: out})
			}
		}
	}
}

// insidePatience bounds how long the VMs may take to answer.
const insidePatience = 5 * time.Second

// readInside adds what the VMs themselves say of their interfaces; nothing for one that does not answer.
func readInside(ctx context.Context, r *state.Record, vms []load.VM) {
	ctx, cancel := context.WithTimeout(ctx, insidePatience)
	defer cancel()
	answers, err := job.Ask(ctx, r.Name, load.InsideCommand)
	if err != nil {
		return // it ends, or its owner is gone: what the host knows is there
	}
	for i := range vms {
		if out, ok := answers[vms[i].Name]; ok {
			vms[i].ReadInside(out)
		}
	}
}

// usageElsewhere asks the owner of a cluster over several hosts, which asks them.
func usageElsewhere(ctx context.Context, name string, nodes bool) ([]load.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, farTime)
	defer cancel()
	c, err := client.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Usage(ctx, nodes)
}

// topTable shows what VMs took between two readings.
func topTable(now, then []load.VM, passed time.Duration, more extras) *terminal.Table {
	earlier := map[string]*load.VM{}
	for i := range then {
		earlier[then[i].Cluster+"/"+then[i].Name] = &then[i]
	}
	// Columns of what no VM has are left out: the rest should fit a terminal.
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
	add(more.inside, "net-in/s", "net-out/s")
	add(rdma, "rdma-in/s", "rdma-out/s")
	add(exits, "exits/s")
	add(true, "read/s", "written/s")
	add(more.nodes, "nodes", "region")
	t := terminal.NewTable(titles...)
	for i := range now {
		v := &now[i]
		name := v.Cluster + "/" + v.Name
		old := earlier[name]
		if old == nil {
			old = v // it is new: nothing is known of its last interval
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
		if more.inside {
			row = append(row, perSecond(r.NetIn, words.Bytes), perSecond(r.NetOut, words.Bytes))
		}
		if rdma {
			row = append(row, perSecond(r.RDMAIn, words.Bytes), perSecond(r.RDMAOut, words.Bytes))
		}
		if exits {
			row = append(row, perSecond(r.Exits, plainCount))
		}
		row = append(row, perSecond(r.Read, words.Bytes), perSecond(r.Written, words.Bytes))
		if more.nodes {
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

// plainCount writes a count in full.
func plainCount(n uint64) string { return fmt.Sprint(n) }

// perSecond writes a rate, nothing where it is not known.
func perSecond(rate float64, write func(uint64) string) string {
	if rate < 0 {
		return ""
	}
	return write(uint64(rate + 0.5))
}

// byNode writes memory of NUMA nodes as NODE:BYTES.
func byNode(nodes []load.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%d:%s", n.Node, words.Bytes(n.Bytes)))
	}
	return strings.Join(list, " ")
}

// watch shows what show writes, each interval anew, n times (0: until ctx ends). On a terminal each takes the place of the
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
