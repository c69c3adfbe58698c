package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
	"nearmetal/internal/wholefile"
)

// planFormats are the formats of nearmetal plan --format.
var planFormats = []string{"text", "yaml", "json", "svg", "qemu", "libvirt", "vsphere", "openstack", "openstack-tofu", "openstack-json", "openstack-yaml"}

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plan [flags]",
		GroupID: groupFile,
		Short:   "Show where the VMs of a cluster would run, and why",
		Long: `Shows which host, CPUs, memory and devices each VM of a cluster would get, as
nearmetal run and nearmetal up choose them. It changes nothing. --explain says
why, and what was turned down.

A host (--from, repeatable; or placement.hosts of the file) is a captured tree,
an archive of nearmetal topology gather or hwloc-gather-topology, hwloc's XML or
a description. The hosts of --hosts are reached by ssh and asked what they have
and what runs on them (docs/hosts.md). Without one it is this host, with the VMs
that run on it now.

On vSphere (--on vsphere) the hosts are ESXi's, from nearmetal topology gather
--vsphere; the settings of each VM are shown, with what ESXi does not promise
of the plan (docs/vsphere.md).

--move says what the VMs of an earlier plan, with the topology that their guests
know, become on the host of --to, and how far from ideal that is.

--format openstack writes what the plan asks OpenStack for, as commands of its
client, with what is lost there. --match FLAVORS says which flavors of a cloud
fit the plan, and what each of the others lacks; the exit status is 3 if none
fits. --json is --format json.`,
		Example: `  nearmetal plan -f cluster.yaml --explain
  nearmetal plan --vms 2 --vcpus 22 --from node17.tar.gz -o plan.svg
  nearmetal plan -f cluster.yaml --format yaml >plan.yaml
  nearmetal plan -f cluster.yaml --format libvirt --dir domains
  nearmetal plan -f cluster.yaml --format openstack >ask.sh
  openstack flavor list --long -f json | nearmetal plan -f c.yaml --match -
  nearmetal plan --hosts node1,node2 --vms 4
  nearmetal plan -f cluster.yaml --on vsphere --from esx1.vsphere.tar.gz
  nearmetal plan --move plan.yaml --to node18.xml`,
		Args: noArgs,
	}
	read := addClusterFlags(cmd)
	renamed(cmd, "host", "from")
	hosts := cmd.Flags().StringArray("from", nil, "plan for `HOST` instead of this one: a directory, an archive, hwloc's XML or a description; repeatable")
	explain := cmd.Flags().Bool("explain", false, "say why, and what was turned down")
	o := addOutputFlags(cmd, planFormats, "`FORMAT`: text, yaml, json, svg for a picture, qemu for the plan's part of QEMU's command lines, libvirt for domains, vsphere for ESXi's settings (JSON), or openstack for commands of its client (openstack-tofu, openstack-json, openstack-yaml: the same for OpenTofu and as data)")
	match := cmd.Flags().String("match", "", "say which `FLAVORS` fit: a file with what openstack flavor list --long -f json prints; - is the input")
	dir := cmd.Flags().String("dir", "", "with --format libvirt: write each domain to `DIR`/NAME.xml, and overwrite nothing")
	move := cmd.Flags().String("move", "", "`PLAN` (YAML or JSON) of running VMs that are to be moved")
	to := cmd.Flags().String("to", "", "`HOST` that --move is to")
	show := func(cmd *cobra.Command, out io.Writer, format string) error {
		if *match != "" && (format != "text" && format != "json" || *move != "") {
			return usagef("--match goes with --format text or json, and without --move")
		}
		if *dir != "" && format != "libvirt" {
			return usagef("--dir goes with --format libvirt")
		}
		if (*move == "") != (*to == "") {
			return usagef("--move PLAN and --to HOST go together")
		}
		c, _, err := read()
		if err != nil {
			return err
		}
		if *move != "" {
			return showMove(out, *move, *to, format, c)
		}
		if err := fitPlan(c); err != nil {
			return err
		}
		p, list, ledger, err := fleet.Plan(cmd.Context(), *hosts, c)
		if err != nil {
			return err
		}
		if err := advise(c, p, list); err != nil {
			return err
		}
		p.Warnings = append(p.Warnings, backend.Unused(c)...)
		if *o.svg != "" {
			if err := wholefile.Write(*o.svg, func(w io.Writer) error { return p.SVG(w, list, ledger) }); err != nil {
				return err
			}
		}
		if format == "svg" {
			return p.SVG(out, list, ledger)
		}
		translated, err := translate(c, p, list)
		if err != nil {
			return err
		}
		if format == "vsphere" {
			if translated == nil {
				return usagef("--format vsphere goes with --on vsphere")
			}
			return translated.JSON(out)
		}
		if *match != "" {
			return showMatch(out, *match, format, *explain, c, p)
		}
		if strings.HasPrefix(format, "openstack") {
			return showRequest(out, format, c, p)
		}
		if format == "libvirt" {
			return showDomains(out, *dir, c, p, list)
		}
		if format == "qemu" {
			return render(cmd.Context(), out, format, c, p)
		}
		if err := p.Write(out, format, *explain); err != nil || format != "text" {
			return err
		}
		if translated != nil {
			_, err = io.WriteString(out, "\n"+translated.Text())
			return err
		}
		more := ""
		if !*explain {
			more = " (--explain says why)"
		}
		_, err = fmt.Fprintf(out, "\n%s%s\n", p.Short(c.Accel), more)
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := o.settle(cmd)
		if err != nil {
			return err
		}
		return o.write(cmd, func(w io.Writer) error { return show(cmd, w, format) })
	}
	return cmd
}

// fitPlan adapts the cluster file to a backend whose capabilities are known without asking it.
func fitPlan(c *spec.Cluster) error {
	d, err := backend.Open(c.Backend)
	if err != nil {
		return err
	}
	defer d.Close()
	if p, ok := d.(backend.Planner); ok {
		return backend.Fit(c, p.Plans())
	}
	return nil
}

// translate returns the plan in a backend's own terms, or nil if it has none.
func translate(c *spec.Cluster, p *plan.Plan, hosts []topology.Host) (backend.Translation, error) {
	d, err := backend.Open(c.Backend)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	t, ok := d.(backend.Translator)
	if !ok {
		return nil, nil
	}
	return t.Translate(c, p, hosts)
}

// advise adds a backend's remarks on a plan to its warnings.
func advise(c *spec.Cluster, p *plan.Plan, hosts []topology.Host) error {
	d, err := backend.Open(c.Backend)
	if err != nil {
		return err
	}
	defer d.Close()
	if a, ok := d.(backend.Adviser); ok {
		p.Warnings = append(p.Warnings, a.Advise(c, p, hosts)...)
	}
	return nil
}

// render writes the request to a backend, in the form that this machine's version accepts, without exports and network,
// which only a running cluster has.
func render(ctx context.Context, w io.Writer, name string, c *spec.Cluster, p *plan.Plan) error {
	d, err := backend.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	r, ok := d.(backend.Renderer)
	if !ok {
		return fmt.Errorf("backend %s has nothing to show for a plan", name)
	}
	// The plan may be for another host, so its accel is not tested here.
	ask := *c
	ask.Accel = string(host.TCG)
	if _, err := d.Probe(ctx, &ask); err != nil {
		return err
	}
	return r.Render(w, p.VMs, backend.Settings{Accel: host.Accel(c.Accel), KernelArgs: c.KernelArgs, Region: p.Region})
}

func showMove(w io.Writer, file, to, format string, c *spec.Cluster) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := plan.Load(f)
	if err != nil {
		return fmt.Errorf("%s: %w", text.Clean(file), err)
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
