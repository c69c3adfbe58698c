package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
)

// switchFlags are the flags of a virtual switch.
type switchFlags struct {
	w      esx.Switch
	remove bool
}

func addSwitchFlags(cmd *cobra.Command) *switchFlags {
	f := &switchFlags{}
	cmd.Flags().StringVar(&f.w.Name, "name", "", "`NAME` of the switch")
	cmd.Flags().StringVar(&f.w.PortGroup, "port-group", "", "`NAME` of its port group, which VMs are put on")
	cmd.Flags().StringVar(&f.w.Card, "pnic", "", "network `CARD` of the host that it sends over: vmnic4")
	cmd.Flags().IntVar(&f.w.MTU, "mtu", 1500, "its MTU, `BYTES`")
	cmd.Flags().IntVar(&f.w.VLAN, "vlan", 0, "the port group's VLAN, `NUMBER`; 0 for none")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "remove it instead")
	return f
}

func (f *switchFlags) check() error {
	switch {
	case f.w.Name == "" || f.w.PortGroup == "" || f.w.Card == "":
		return usagef("--name, --port-group and --pnic are needed")
	case len(f.w.Name) > 80 || len(f.w.PortGroup) > 80 || len(f.w.Card) > 32:
		return usagef("a name is longer than vCenter takes")
	case f.w.MTU < 1280 || f.w.MTU > 9000:
		return usagef("--mtu %d: 1280 to 9000", f.w.MTU)
	case f.w.VLAN < 0 || f.w.VLAN > 4094:
		return usagef("--vlan %d: 0 to 4094", f.w.VLAN)
	}
	return nil
}

// said prints the result of a change to a switch.
func (f *switchFlags) said(cmd *cobra.Command, changed bool) {
	what := "made"
	switch {
	case f.remove && changed:
		what = "removed"
	case f.remove:
		what = "not there"
	case !changed:
		what = "there already"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "switch %s, port group %s: %s\n", text.Clean(f.w.Name), text.Clean(f.w.PortGroup), what)
}

// switchCommand completes a command that creates or removes a switch with set, which reports whether it changed
// anything.
func switchCommand(cmd *cobra.Command, set func(v vspherePart, hosts []string, f *switchFlags) (bool, error)) *cobra.Command {
	f := addSwitchFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		v, err := inVSphere()
		if err != nil {
			return err
		}
		changed, err := set(v, args, f)
		if err == nil {
			f.said(cmd, changed)
		}
		return err
	}
	return cmd
}

func newVSphereSVSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "svs HOST --name NAME --port-group NAME --pnic CARD",
		Short: "Make or remove a standard switch of a host",
		Long: `Makes a standard switch on an ESXi host, with one card and one port group. What
is there already is left so. If the port group cannot be made, the switch is
removed again.

--remove removes a switch only if it has that card and that port group, and no
others.`,
		Example: "  nearmetal vsphere svs esx1 --name sw --port-group pg --pnic vmnic4 --mtu 9000\n  nearmetal vsphere svs esx1 --name sw --port-group pg --pnic vmnic4 --remove",
		Args:    exactArgs("HOST"),
	}
	return switchCommand(cmd, func(v vspherePart, hosts []string, f *switchFlags) (bool, error) {
		return v.SVS(cmd.Context(), hosts[0], f.w, f.remove)
	})
}

func newVSphereDVSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dvs HOST... --name NAME --port-group NAME --pnic CARD",
		Short: "Make or remove a distributed switch over hosts",
		Long: `Makes a distributed switch over ESXi hosts, with one card of each and one port
group. What is there already is left so. If the port group cannot be made, the
switch is removed again.

The switch has a mark in its description. One without the mark is neither
changed nor removed.`,
		Example: "  nearmetal vsphere dvs esx1 esx2 --name sw --port-group pg --pnic vmnic4\n  nearmetal vsphere dvs esx1 --name sw --port-group pg --pnic vmnic4 --remove",
		Args:    atLeastOne("HOST"),
	}
	return switchCommand(cmd, func(v vspherePart, hosts []string, f *switchFlags) (bool, error) {
		return v.DVS(cmd.Context(), hosts, f.w, f.remove)
	})
}
