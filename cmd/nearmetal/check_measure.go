package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/host/measure"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// runMeasure checks this host and times it.
// checkMeasured is what `nearmetal check --measure --json` prints.
type checkMeasured struct {
	*check.Report
	Measured *measure.Result `json:"measured"`
}

func (f *checkFlags) runMeasure(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, o check.Options) error {
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	h, err := topology.Read("/")
	if err != nil {
		return err
	}
	step := p.Start("measuring")
	defer step.Done()
	m, err := measure.Run(ctx, measure.Options{Host: h, RDMA: check.ActiveRDMA(), Detail: func(s string) { step.Detail("%s", s) }})
	if err != nil {
		return err
	}
	step.Done()
	if *f.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), checkMeasured{&r, m})
		if err == nil && r.Failed() {
			err = findings(nil)
		}
		return err
	}
	err = f.show(cmd, &r)
	if _, bad := io.WriteString(cmd.OutOrStdout(), "\n"+measuredText(m)); bad != nil {
		return bad
	}
	return err
}

// measuredText lays out what was measured: the range of each kind, then what is out of line.
func measuredText(m *measure.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "measured in %.1f s\n", m.Seconds)
	var odd []string
	kinds := map[string][]float64{}
	for _, p := range m.Pairs {
		kinds[p.Kind] = append(kinds[p.Kind], p.Ns)
		if p.Odd {
			odd = append(odd, fmt.Sprintf("CPUs %d and %d (same %s): %.0f ns", p.A, p.B, p.Kind, p.Ns))
		}
	}
	for _, k := range []struct{ kind, title string }{
		{"core", "threads of a core"}, {"cache", "cores with a common cache"}, {"node", "cores of a node"},
		{"package", "cores of a package"}, {"machine", "cores of different packages"},
	} {
		if v := kinds[k.kind]; len(v) > 0 {
			fmt.Fprintf(&b, "  %-36s %s\n", "cache line, "+k.title, spread(v, "ns"))
		}
	}
	for _, x := range m.Memory {
		fmt.Fprintf(&b, "  %-36s %.0f ns, %.1f GB/s\n", fmt.Sprintf("memory of node %d from node %d", x.Node, x.CPUNode), x.Ns, x.MBps/1e3)
		if x.Odd {
			odd = append(odd, fmt.Sprintf("memory of node %d from node %d: %.0f ns, %.1f GB/s", x.Node, x.CPUNode, x.Ns, x.MBps/1e3))
		}
	}
	var calls, faults, timers []float64
	latest := 0.0
	for _, c := range m.CPUs {
		calls, faults, timers = append(calls, c.Syscall), append(faults, c.Fault), append(timers, c.TimerMid/1e3)
		latest = math.Max(latest, c.TimerMax/1e3)
		if c.Odd {
			odd = append(odd, fmt.Sprintf("CPU %d: system call %.0f ns, page fault %.0f ns, timer %.1f µs late", c.CPU, c.Syscall, c.Fault, c.TimerMid/1e3))
		}
	}
	fmt.Fprintf(&b, "  %-36s %s\n", "system call", spread(calls, "ns"))
	fmt.Fprintf(&b, "  %-36s %s\n", "page fault, 4 KiB", spread(faults, "ns"))
	fmt.Fprintf(&b, "  %-36s %s, at most %.0f µs\n", "timer's lateness", spread(timers, "µs"), latest)
	for _, d := range m.RDMA {
		if d.Error != "" {
			fmt.Fprintf(&b, "  %-36s not measured: %s\n", "RDMA "+d.Device, text.Clean(d.Error))
			continue
		}
		fmt.Fprintf(&b, "  %-36s %.2f µs for 8 bytes to itself\n", "RDMA "+d.Device, d.Us)
		if d.Odd {
			odd = append(odd, fmt.Sprintf("RDMA %s: %.2f µs", d.Device, d.Us))
		}
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	if len(odd) == 0 {
		b.WriteString("nothing is out of line for this machine\n")
		return b.String()
	}
	b.WriteString("out of line for this machine:\n")
	const most = 20
	for i, line := range odd {
		if i == most {
			fmt.Fprintf(&b, "  and %d more\n", len(odd)-most)
			break
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// spread returns the median of values and their range.
func spread(v []float64, unit string) string {
	if len(v) == 0 {
		return "-"
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	if len(s) == 1 {
		return fmt.Sprintf("%.3g %s", s[0], unit)
	}
	return fmt.Sprintf("%.3g %s (%.3g to %.3g)", s[len(s)/2], unit, s[0], s[len(s)-1])
}
