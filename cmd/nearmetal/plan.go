package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/cluster"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
)

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plan [flags]",
		GroupID: groupFile,
		Short:   "Show where the VMs of a cluster would run, and why",
		Long: `Shows which host, CPUs, memory and devices each VM of a cluster would get, as
nearmetal run and nearmetal up choose them. It changes nothing. --explain says
why, and what was turned down.

A host (--host, repeatable; or placement.hosts of the file) is a captured tree,
an archive of nearmetal topology gather, hwloc's XML or a description. Without
one it is this host, with the VMs that run on it now.

--move says what the VMs of an earlier plan, with the topology that their guests
know, become on the host of --to, and how far from ideal that is.`,
		Example: `  nearmetal plan -f cluster.yaml --explain
  nearmetal plan --vms 2 --vcpus 22 --host node17.tar.gz --svg plan.svg
  nearmetal plan -f cluster.yaml --format yaml >plan.yaml
  nearmetal plan --move plan.yaml --to node18.xml`,
		Args: noArgs,
	}
	read := addClusterFlags(cmd)
	hosts := cmd.Flags().StringArray("host", nil, "a host to plan for: folder, archive, hwloc's XML or description; repeatable")
	explain := cmd.Flags().Bool("explain", false, "say why, and what was turned down")
	format := cmd.Flags().String("format", "text", "text, yaml, json, or qemu for command lines")
	svg := cmd.Flags().String("svg", "", "write a picture to this file")
	move := cmd.Flags().String("move", "", "plan (YAML or JSON) of running VMs that are to be moved")
	to := cmd.Flags().String("to", "", "host that --move is to")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"text", "yaml", "json", "qemu"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch *format {
		case "text", "yaml", "json", "qemu":
		default:
			return usagef("--format %q: text, yaml, json or qemu", *format)
		}
		if (*move == "") != (*to == "") {
			return usagef("--move PLAN and --to HOST go together")
		}
		c, _, err := read()
		if err != nil {
			return err
		}
		if *move != "" {
			return showMove(cmd.OutOrStdout(), *move, *to, *format, c)
		}
		list, ledger, err := planHosts(*hosts, c)
		if err != nil {
			return err
		}
		p, err := plan.Make(c, list, ledger)
		if err != nil {
			return err
		}
		if *svg != "" {
			if err := writeFile(*svg, func(w io.Writer) error { return p.SVG(w, list, ledger) }); err != nil {
				return err
			}
		}
		if *format == "qemu" {
			return writeQEMU(cmd.Context(), cmd.OutOrStdout(), c, p)
		}
		return p.Write(cmd.OutOrStdout(), *format, *explain)
	}
	return cmd
}

// planHosts reads the hosts that flags or file name, or this one with what runs
// on it, and settles how instructions run: what another host has is not known,
// and a plan for it is made to run well.
func planHosts(names []string, c *spec.Cluster) ([]topology.Host, plan.Ledger, error) {
	if len(names) == 0 {
		names = c.Placement.Hosts
	}
	var ledger plan.Ledger
	if len(names) == 0 {
		h, err := topology.Read("/")
		if err != nil {
			return nil, ledger, err
		}
		accel, _, err := host.DetectAccel(c.Accel)
		if err != nil {
			return nil, ledger, err
		}
		c.Accel = string(accel)
		running, err := cluster.List()
		if err != nil {
			return nil, ledger, err
		}
		for i := range running {
			if p := running[i].Plan; p != nil && running[i].State != cluster.Dead {
				ledger.Hold(p)
			}
		}
		return []topology.Host{*h}, ledger, nil
	}
	if c.Accel == "auto" {
		c.Accel = "kvm"
	}
	var list []topology.Host
	seen := map[string]int{}
	for _, n := range names {
		h, err := topology.Open(n)
		if err != nil {
			return nil, ledger, err
		}
		// Captured trees of several machines are often named alike.
		if seen[h.Name]++; seen[h.Name] > 1 {
			h.Name = fmt.Sprintf("%s-%d", h.Name, seen[h.Name])
		}
		list = append(list, *h)
	}
	return list, ledger, nil
}

// writeQEMU writes each VM's QEMU command line, as this machine's QEMU takes it,
// without what only a running cluster has: exports and network.
func writeQEMU(ctx context.Context, w io.Writer, c *spec.Cluster, p *plan.Plan) error {
	path, err := qemu.Find(c.QEMU)
	if err != nil {
		return err
	}
	caps, err := qemu.Probe(ctx, path)
	if err != nil {
		return err
	}
	for i := range p.VMs {
		m, err := qemu.Build(p.VMs[i], qemu.Settings{Accel: host.Accel(c.Accel), KernelArgs: c.KernelArgs, Region: p.Region}, caps)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "# %s on %s\n", p.VMs[i].Name, p.VMs[i].Host)
		for k, arg := range m.Args() {
			switch {
			case k == 0:
			case strings.HasPrefix(arg, "-"):
				io.WriteString(w, " \\\n  ")
			default:
				io.WriteString(w, " ")
			}
			io.WriteString(w, shellQuote(arg))
		}
		fmt.Fprintln(w)
	}
	return nil
}

// shellQuote quotes an argument for a shell where it needs to be.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func showMove(w io.Writer, file, to, format string, c *spec.Cluster) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := plan.Load(f)
	if err != nil {
		return fmt.Errorf("%s: %w", terminal.Clean(file), err)
	}
	h, err := topology.Open(to)
	if err != nil {
		return err
	}
	m, err := plan.MakeMove(p, *h, c.Placement, plan.Ledger{})
	if err != nil {
		return err
	}
	if format == "json" {
		return terminal.PrintJSON(w, m)
	}
	m.Text(w)
	return nil
}
