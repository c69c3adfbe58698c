package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newVSphereCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "vsphere",
		GroupID: groupHost,
		Short:   "Show and set what ESXi hosts offer to VMs: devices, power, switches",
		Long: `Shows and sets what an ESXi host offers to virtual machines, through the vCenter
of GOVC_URL (docs/vsphere.md). HOST is a host's name or path there. A setting
stays until it is set again; each change says the command that undoes it.`,
		Example: `  nearmetal vsphere passthru esx1.example.com
  nearmetal vsphere sriov esx1.example.com vmnic4 --vfs 8
  nearmetal vsphere power esx1.example.com --policy high`,
	}
	cmd.AddCommand(newVSpherePassthruCommand(), newVSphereSRIOVCommand(), newVSpherePowerCommand(), newVSphereSVSCommand(), newVSphereDVSCommand())
	return cmd
}

func newVSpherePassthruCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "passthru HOST [FUNCTION...] [--on|--off]",
		Short: "List the PCI functions that VMs can have, or pass some whole",
		Long: `Lists the PCI functions of an ESXi host that VMs can have whole or in part. With
--on or --off it switches DirectPath I/O on or off for functions, by address or
network name, in one call, and reads back what became of them. A function over
which the host's own switches send is refused, and so is one with virtual
functions.`,
		Example: `  nearmetal vsphere passthru esx1.example.com --json
  nearmetal vsphere passthru esx1.example.com 0000:3b:00.1 --on`,
		Args: atLeastOne("HOST"),
	}
	on := cmd.Flags().Bool("on", false, "pass the functions through")
	off := cmd.Flags().Bool("off", false, "return the functions to the host")
	asJSON := addJSONFlag(cmd)
	exclude(cmd, "on", "off")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host, which := args[0], args[1:]
		if (*on || *off) != (len(which) > 0) {
			return usagef("functions and --on or --off go together")
		}
		if len(which) == 0 {
			return showFunctions(cmd, host, *asJSON)
		}
		v, err := inVSphere()
		if err != nil {
			return err
		}
		before, after, err := v.SetPassthru(cmd.Context(), host, which, *on)
		if err != nil {
			return err
		}
		undo := "--off"
		if *off {
			undo = "--on"
		}
		return changed(cmd, before, after, *asJSON, func(_ int, list string) string {
			return "nearmetal vsphere passthru " + host + " " + list + " " + undo
		})
	}
	return cmd
}

func newVSphereSRIOVCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sriov HOST [CARD...] [--vfs N]",
		Short: "Show or set how many virtual functions a host's cards have",
		Long: `Lists the PCI functions of an ESXi host that VMs can have. With --vfs it sets
the number of virtual functions of cards, by address or network name, in one
call, and reads back what became of them; 0 switches SR-IOV off.`,
		Example: "  nearmetal vsphere sriov esx1.example.com\n  nearmetal vsphere sriov esx1.example.com vmnic4 vmnic6 --vfs 8",
		Args:    atLeastOne("HOST"),
	}
	n := cmd.Flags().Int("vfs", -1, "`N` virtual functions for each card")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host, which := args[0], args[1:]
		if cmd.Flags().Changed("vfs") != (len(which) > 0) {
			return usagef("cards and --vfs go together")
		}
		if len(which) == 0 {
			return showFunctions(cmd, host, *asJSON)
		}
		if *n < 0 || *n > 65535 {
			return usagef("--vfs %d: a number from 0 to what the card can have", *n)
		}
		v, err := inVSphere()
		if err != nil {
			return err
		}
		before, after, err := v.SetVFs(cmd.Context(), host, which, *n)
		if err != nil {
			return err
		}
		return changed(cmd, before, after, *asJSON, func(vfs int, list string) string {
			return fmt.Sprintf("nearmetal vsphere sriov %s %s --vfs %d", host, list, vfs)
		})
	}
	return cmd
}

func newVSpherePowerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "power HOST [--policy POLICY]",
		Short:   "Show or set a host's power policy",
		Long:    "Shows the power policy of an ESXi host, or sets it and reads it back. VMware's\nstudies of MPI programs use high: High Performance.",
		Example: "  nearmetal vsphere power esx1.example.com\n  nearmetal vsphere power esx1.example.com --policy high",
		Args:    exactArgs("HOST"),
	}
	var words []string
	for _, p := range esx.Policies {
		words = append(words, p.Word)
	}
	policy := cmd.Flags().String("policy", "", "`POLICY`: "+strings.Join(words, ", "))
	cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := inVSphere()
		if err != nil {
			return err
		}
		before, after, err := v.Power(cmd.Context(), args[0], *policy)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), text.Clean(after))
		if before != after {
			fmt.Fprintf(cmd.ErrOrStderr(), "undone by: nearmetal vsphere power %s --policy %s\n", text.Clean(args[0]), text.Clean(before))
		}
		return nil
	}
	return cmd
}

// showFunctions lists the functions of a host.
func showFunctions(cmd *cobra.Command, host string, asJSON bool) error {
	v, err := inVSphere()
	if err != nil {
		return err
	}
	list, err := v.Functions(cmd.Context(), host)
	if err != nil {
		return err
	}
	return printFunctions(cmd, list, asJSON)
}

func printFunctions(cmd *cobra.Command, list []esx.Function, asJSON bool) error {
	if asJSON {
		return terminal.PrintJSON(cmd.OutOrStdout(), list)
	}
	t := terminal.NewTable("function", "card", "whole", "vfs", "used by", "name")
	for _, f := range list {
		whole := "no"
		switch {
		case f.Active && f.Passthru:
			whole = "yes"
		case f.Active != f.Passthru:
			whole = "after a boot: " + map[bool]string{true: "yes", false: "no"}[f.Passthru]
		case !f.Capable:
			whole = "cannot"
		}
		vfs := fmt.Sprintf("%d of %d", f.VFs, f.Most)
		if f.Requested != f.VFs {
			vfs += fmt.Sprintf(", after a boot %d", f.Requested)
		}
		t.Row(f.Address, f.Net, whole, vfs, strings.Join(f.Uses, ", "), f.Name)
	}
	return t.Print(cmd.OutOrStdout())
}

// changed prints functions after a change, and the commands that undo it: one for each earlier number of virtual
// functions.
func changed(cmd *cobra.Command, before, after []esx.Function, asJSON bool, undo func(vfs int, list string) string) error {
	by := map[int][]string{}
	for i := range before {
		if before[i].Passthru != after[i].Passthru || before[i].Requested != after[i].Requested {
			by[before[i].Requested] = append(by[before[i].Requested], after[i].Address)
		}
	}
	var counts []int
	for n := range by {
		counts = append(counts, n)
	}
	sort.Ints(counts)
	for _, n := range counts {
		fmt.Fprintf(cmd.ErrOrStderr(), "undone by: %s\n", text.Clean(undo(n, strings.Join(by[n], " "))))
	}
	return printFunctions(cmd, after, asJSON)
}
