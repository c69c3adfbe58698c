package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/device"
)

// deviceSet has the values of the flags of device set.
type deviceSet struct {
	attributes map[string]*string // of a VF
	eswitch    string
	firmware   device.FirmwareWant
	yes        bool
}

func newDeviceSetCommand(open opener) *cobra.Command {
	names, help := device.Attributes()
	s := &deviceSet{attributes: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "set DEVICE --ATTRIBUTE VALUE...",
		Short: "Set attributes of a VF, or of a card",
		Long: `Sets attributes of a VF through its physical function, all of them or none:
MAC address, VLAN, trust, spoof check and rate on Ethernet; node and port GUID
and policy on InfiniBand; the link's state on both.

Of a card (a physical function) it sets the eswitch's mode, and, by mstconfig of
the package mstflint, link type and number of VFs in the firmware of Mellanox
cards: it shows what would change and asks. Firmware settings count after a cold
boot of the host.

nearmetal device release sets everything back.`,
		Example: `  nearmetal device set 41:00.1 --vlan 100 --trust on
  nearmetal device set 41:00.1 --node-guid 02:c9:03:00:00:10:20:30
  nearmetal device set mlx5_0 --link-type ib --firmware-vfs 8
  nearmetal device set mlx5_0 --eswitch switchdev`,
		Args:              exactArgs("DEVICE"),
		ValidArgsFunction: completeDevices(open, device.VF, device.PF, device.Plain),
	}
	flags := cmd.Flags()
	for _, n := range names {
		s.attributes[n] = flags.String(n, "", help[n])
	}
	flags.StringVar(&s.eswitch, "eswitch", "", "mode of the card's eswitch, `legacy|switchdev`")
	flags.StringVar(&s.firmware.LinkType, "link-type", "", "link of the card's port in its firmware, `ib|eth`")
	flags.IntVar(&s.firmware.VFs, "firmware-vfs", -1, "`N` VFs in the card's firmware, 0 turns SR-IOV off (default: left as it is)")
	flags.Lookup("firmware-vfs").DefValue = "0" // do not show -1 as the default
	flags.BoolVarP(&s.yes, "yes", "y", false, "with firmware settings: do not ask")
	for name, words := range map[string][]string{"eswitch": {"legacy", "switchdev"}, "link-type": {"ib", "eth"}} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // two completions of one flag: a bug here
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ofVF, err := s.check(cmd)
		if err != nil {
			return err
		}
		h, f, err := openDevice(open, args[0])
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		if len(ofVF) > 0 {
			return h.Set(ctx, f.Address, ofVF)
		}
		return s.card(ctx, cmd, h, f)
	}
	return cmd
}

// check validates the flags, and returns the attributes of a VF among them.
func (s *deviceSet) check(cmd *cobra.Command) (map[string]string, error) {
	flags := cmd.Flags()
	ofVF := map[string]string{}
	for n, v := range s.attributes {
		if !flags.Changed(n) {
			continue
		}
		if err := device.CheckAttribute(n, *v); err != nil {
			return nil, usagef("--%s: %w", n, err)
		}
		ofVF[n] = *v
	}
	ofCard := ""
	for _, n := range []string{"eswitch", "link-type", "firmware-vfs"} {
		if flags.Changed(n) {
			ofCard = n
		}
	}
	switch {
	case len(ofVF) == 0 && ofCard == "":
		return nil, usagef("no attribute is given")
	case len(ofVF) > 0 && ofCard != "":
		return nil, usagef("--%s is a card's, and the others are a VF's: set one after the other", ofCard)
	}
	if flags.Changed("eswitch") {
		if err := device.CheckEswitch(s.eswitch); err != nil {
			return nil, usagef("--eswitch: %w", err)
		}
	}
	if flags.Changed("link-type") && s.firmware.LinkType == "" {
		return nil, usagef("--link-type: say ib or eth")
	}
	if flags.Changed("firmware-vfs") && s.firmware.VFs < 0 {
		return nil, usagef("--firmware-vfs: %d is not a number of VFs", s.firmware.VFs)
	}
	if err := s.firmware.Check(); err != nil {
		return nil, usagef("--link-type, --firmware-vfs: %w", err)
	}
	return ofVF, nil
}

// card sets the attributes of a card.
func (s *deviceSet) card(ctx context.Context, cmd *cobra.Command, h *device.Host, f *device.Function) error {
	if s.eswitch != "" {
		if err := h.SetEswitch(ctx, f.Address, s.eswitch); err != nil {
			return err
		}
	}
	if s.firmware.LinkType == "" && s.firmware.VFs < 0 {
		return nil
	}
	p := progress(cmd)
	defer p.Close()
	step := p.Start("asking the firmware of " + f.Address)
	list, err := h.PlanFirmware(ctx, f.Address, s.firmware)
	if err := finishStep(step, err); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if len(list) == 0 {
		fmt.Fprintf(out, "The firmware of %s is set so already.\n", f.Address)
		return nil
	}
	fmt.Fprintf(out, "To be written into the firmware of %s:\n", f.Address)
	for _, c := range list {
		fmt.Fprintf(out, "  %s: %s (now %s)\n", c.Name, c.After, c.Before)
	}
	if os.Geteuid() != 0 {
		return mustBeRoot("device set")
	}
	if ok, err := confirm(cmd, s.yes); err != nil || !ok {
		return err
	}
	step = p.Start("writing")
	if err := finishStep(step, h.SetFirmware(ctx, f.Address, list)); err != nil {
		return err
	}
	fmt.Fprintf(out, "Written. It counts after a cold boot (power off, then on); nearmetal device release %s sets it back.\n", f.Address)
	return nil
}
