package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/job"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/verify"
)

func newVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify [NAME[/VM] | --domain DOMAIN | --flavor FILE] [--json]",
		GroupID: groupCluster,
		Short:   "Compare running VMs with their plan",
		Long: `Reads the VMs of a running cluster back and prints plan against fact, row by
row: the CPUs of vCPUs and of QEMU's other threads, each node's memory with its
policy, its pages and their size, the topology, devices and region in QEMU, and
nodes, distances, memory, caches and devices as the kernels in the VMs see
them. See docs/verify.md.

--domain compares a running domain of libvirt's, whoever made it, with what its
own XML asks for: vcpupin, emulatorpin, topology, cells, numatune, huge pages
and devices.

--flavor, inside a VM of a cloud, compares what the flavor promises with what
this VM sees (no privileges needed): vCPUs, sockets, cores, threads, nodes,
memory, stolen time, clock, cards and the region. FILE is what openstack flavor
show NAME -f json prints. Of several flavors the VM's own is taken, which its
metadata names (docs/openstack.md).

The exit status is 3 if anything differs. A note is not a
difference: it names what could not be read, or what this QEMU cannot show.`,
		Example: `  nearmetal verify
  nearmetal verify demo
  nearmetal verify demo/vm1
  nearmetal verify demo --json
  sudo nearmetal verify --domain web01
  openstack flavor show hpc.16 -f json | ssh vm nearmetal verify --flavor -`,
		Args:              rangeArgs(0, "NAME[/VM]"),
		ValidArgsFunction: completeTarget,
	}
	asJSON := addJSONFlag(cmd)
	domain := cmd.Flags().String("domain", "", "compare libvirt's domain `NAME` with its XML")
	connect := addConnectFlag(cmd)
	flavor := cmd.Flags().String("flavor", "", "compare this VM with the OpenStack flavor in `FILE`, - for standard input")
	renamed(cmd, "root", "from")
	root := cmd.Flags().String("from", "", "with --flavor: a captured tree, `DIR` with sys/ and proc/ in it, instead of this VM")
	if err := cmd.RegisterFlagCompletionFunc("domain", completeDomain); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible()
		defer stop()
		switch {
		case *domain != "" && len(args) > 0:
			return usagef("--domain and a cluster's name cannot be given together")
		case *flavor != "" && (len(args) > 0 || *domain != ""):
			return usagef("--flavor is for the VM that it runs in: leave out --domain and a cluster's name")
		case *root != "" && *flavor == "":
			return usagef("--from goes with --flavor")
		case *connect != "" && *domain == "":
			return usagef("--connect goes with --domain")
		case *flavor != "":
			r, err := verifyFlavor(cmd, *flavor, *root)
			if err != nil {
				return err
			}
			return showVerified(cmd, r, *asJSON, "as its flavor says")
		case *domain != "":
			r, err := verifyDomain(ctx, *connect, *domain)
			if err != nil {
				return err
			}
			return showVerified(cmd, r, *asJSON, "as its XML says")
		}
		t := job.ParseTarget(firstArg(args))
		c, err := client.Connect(ctx, t.Cluster)
		if err != nil {
			return err
		}
		defer c.Close()
		if t.VM != "" {
			if t.VM, err = c.Record.FindVM(t.VM); err != nil {
				return err
			}
		}
		if err := c.Running(); err != nil {
			return err
		}
		r, err := c.Verify(ctx)
		if err != nil {
			return err
		}
		if t.VM != "" {
			r.Rows = slices.DeleteFunc(r.Rows, func(row verify.Row) bool { return row.VM != t.VM })
		}
		return showVerified(cmd, r, *asJSON, "as planned")
	}
	return cmd
}

// showVerified prints a report. It returns findings if a row differs from the plan.
func showVerified(cmd *cobra.Command, r *verify.Report, asJSON bool, as string) (err error) {
	if asJSON {
		err = terminal.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		err = printReport(cmd, r)
	}
	if n := r.Count(verify.Differs); n > 0 && err == nil {
		err = findings(fmt.Errorf("%s is not %s: %d of %d points differ", r.Cluster, as, n, len(r.Rows)))
	}
	return err
}

// printReport prints the rows of each VM below a line that counts them, and a summary.
func printReport(cmd *cobra.Command, r *verify.Report) error {
	out := cmd.OutOrStdout()
	var vms []string
	rows := map[string][]verify.Row{}
	for _, row := range r.Rows {
		if rows[row.VM] == nil {
			vms = append(vms, row.VM)
		}
		rows[row.VM] = append(rows[row.VM], row)
	}
	for _, vm := range vms {
		one := &verify.Report{Rows: rows[vm]}
		fmt.Fprintf(out, "%s: %s\n", text.Clean(vm), verdict(one))
		t := terminal.NewTable("what", "planned", "found", "status")
		for _, row := range one.Rows {
			t.Row(row.What, row.Planned, row.Found, row.Status)
		}
		if err := t.Print(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	_, err := fmt.Fprintf(out, "%s, %s: %s\n", text.Clean(r.Cluster), counted(len(vms), "VM", "VMs"), verdict(r))
	return err
}

// verdict returns a summary of a report: the counts of its rows.
func verdict(r *verify.Report) string {
	bad, notes := r.Count(verify.Differs), r.Count(verify.Note)
	s := fmt.Sprintf("as planned (%s)", counted(len(r.Rows), "point", "points"))
	if bad > 0 {
		s = fmt.Sprintf("%d of %s differ", bad, counted(len(r.Rows), "point", "points"))
	}
	if notes > 0 {
		s += ", " + counted(notes, "note", "notes")
	}
	return s
}

// addNoVerifyFlag adds --no-verify.
func addNoVerifyFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("no-verify", false, "do not compare the VMs with their plan once they are ready (guest kernels are compared with KVM only; nearmetal verify always does)")
}
