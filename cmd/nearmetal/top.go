package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster"
	"nearmetal/internal/load"
	"nearmetal/internal/terminal"
	"nearmetal/internal/words"
)

func newTopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top [NAME] [--json|--openmetrics]",
		GroupID: groupCluster,
		Short:   "Show what VMs take of this host, live",
		Long: `Shows the VMs of the user's clusters, or of one, and what each takes, once an
interval: CPUs that its vCPUs use (2.0 is the time of two), CPUs that they wait
for since others have them (steal, as the host sees it), CPUs of QEMU's other
threads, memory in ordinary and in huge pages, exits a second where KVM's
statistics may be read (root, /sys/kernel/debug), and bytes a second that QEMU
reads and writes, of shared file systems above all. Nothing in a VM is asked.

--nodes shows on which NUMA nodes of the host the memory lies, and what of the
region the VM has touched. For that the kernel walks all pages of the VM, which
holds it up: take a long --interval with it.

Without a terminal, and with --count, it shows that many intervals. --json and
--openmetrics print what was taken since the VMs' start, once.`,
		Example: `  nearmetal top
  nearmetal top demo --interval 5s
  nearmetal top --nodes --interval 30s
  nearmetal top --openmetrics >/var/lib/node_exporter/nearmetal.prom`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	interval := span(time.Second)
	cmd.Flags().Var(&interval, "interval", "time between two readings")
	count := cmd.Flags().Int("count", 0, "`N` intervals, then the end (default until Ctrl-C, without a terminal 1)")
	nodes := cmd.Flags().Bool("nodes", false, "show memory by NUMA node, and of the region")
	asJSON := addJSONFlag(cmd)
	metrics := cmd.Flags().Bool("openmetrics", false, "print OpenMetrics text, for node_exporter's textfile collector")
	cmd.MarkFlagsMutuallyExclusive("json", "openmetrics")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := clusterTarget(cmd, firstArg(args))
		if err != nil {
			return err
		}
		if *count < 0 {
			return usagef("--count: %d is less than 0", *count)
		}
		out := cmd.OutOrStdout()
		now, err := readUsage(name, *nodes)
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
			if now, err = readUsage(name, *nodes); err != nil {
				return err
			}
			at = time.Now()
			return topTable(now, then, at.Sub(before), *nodes).Print(w)
		})
	}
	return cmd
}

// readUsage reads what the VMs of the user's clusters take, or of the one called name.
func readUsage(name string, nodes bool) ([]load.VM, error) {
	list, err := cluster.List()
	if err != nil {
		return nil, err
	}
	if name != "" {
		r, err := cluster.Find(name)
		if err != nil {
			return nil, err
		}
		if len(r.Remote) > 0 {
			return nil, fmt.Errorf("the VMs of cluster %s are on other hosts: call nearmetal top there", r.Name)
		}
		list = []cluster.Record{*r}
	}
	vms := []load.VM{}
	for _, r := range list {
		if r.State == cluster.Dead || len(r.Remote) > 0 {
			continue
		}
		for _, v := range r.VMs {
			u := load.VM{Cluster: r.Name, Name: v.Name, State: string(v.State), VCPUs: v.VCPUs}
			if r.Paused && v.State == cluster.Ready {
				u.State = "paused"
			}
			if v.PID != 0 && u.Read("/", v.PID) && nodes {
				u.ReadNodes("/", v.PID)
			}
			vms = append(vms, u)
		}
	}
	return vms, nil
}

// topTable shows what VMs took between two readings.
func topTable(now, then []load.VM, passed time.Duration, nodes bool) *terminal.Table {
	earlier := map[string]*load.VM{}
	for i := range then {
		earlier[then[i].Cluster+"/"+then[i].Name] = &then[i]
	}
	titles := []string{"vm", "state", "vcpus", "used", "wait", "other", "memory", "huge", "exits/s", "read/s", "written/s"}
	if nodes {
		titles = append(titles, "nodes", "region")
	}
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
			words.Bytes(v.ResidentBytes), words.Bytes(v.HugeBytes),
			perSecond(r.Exits, func(n uint64) string { return fmt.Sprint(n) }), perSecond(r.Read, words.Bytes), perSecond(r.Written, words.Bytes)}
		if nodes {
			row = append(row, byNode(v.Nodes), "")
			if v.RegionBytes != nil {
				row[len(row)-1] = words.Bytes(*v.RegionBytes)
			}
		}
		t.Row(row...)
	}
	return t
}

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
		if live {
			b.WriteString(home)
		} else if i > 0 {
			b.WriteByte('\n')
		}
		if err := show(&b); err != nil {
			return err
		}
		if _, err := out.Write(b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
