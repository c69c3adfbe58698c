package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
)

// kindEswitch is the mode of a card's switch between its VFs and its port. It ends with this boot.
const kindEswitch = "eswitch-mode"

// checkEswitch accepts the modes of devlink-dev(8).
var checkEswitch = checkWord("legacy", "switchdev")

func init() {
	journal.Register(kindEswitch, func(c journal.Change) error {
		if !address().MatchString(c.Args["address"]) {
			return fmt.Errorf("%.40q is not a PCI address", c.Args["address"])
		}
		if _, err := checkEswitch(c.Args["before"]); err != nil {
			return err
		}
		return validRoot(c)
	}, undoEswitch, func(c journal.Change) string {
		return fmt.Sprintf("eswitch mode of %s (was %s)", c.Args["address"], c.Args["before"])
	})
}

func undoEswitch(c journal.Change) (bool, error) {
	h, at := host(c), c.Args["address"]
	if h == nil || !h.there(at) {
		return false, nil
	}
	now, err := h.Links.Eswitch(at)
	if err != nil || now == c.Args["before"] {
		return false, err
	}
	return true, h.Links.SetEswitch(at, c.Args["before"])
}

// CheckEswitch returns an error for an invalid mode of SetEswitch.
func CheckEswitch(mode string) error {
	_, err := checkEswitch(mode)
	return err
}

// SetEswitch sets the mode of a PF's eswitch to legacy (the card forwards by MAC and VLAN) or switchdev (the host has
// an interface for each VF, and controls the forwarding). The kernel interrupts the VFs' traffic during the change.
// Therefore it fails while a VM has a VF of the card, or while the host's default route uses the card. Release
// restores the mode.
func (h *Host) SetEswitch(_ context.Context, at, mode string) (err error) {
	if err := CheckEswitch(mode); err != nil {
		return err
	}
	if _, err := change.Recover(h.State()); err != nil {
		return err
	}
	f := h.read(at)
	if f.Kind == VF {
		return fmt.Errorf("device %s is a VF: its card %s has the eswitch", at, f.PF)
	}
	before, err := h.Links.Eswitch(at)
	if err != nil {
		return fmt.Errorf("device %s: %w", at, err)
	}
	if before == mode {
		return nil
	}
	if err := h.quietCard(f); err != nil {
		return err
	}
	t, err := h.begin("set:" + at)
	if err != nil {
		return err
	}
	defer func() { err = h.finish(t, err) }()
	if err := t.Record(journal.Change{Kind: kindEswitch, Args: h.here(map[string]string{"address": at, "before": before})}); err != nil {
		return err
	}
	if err := h.Links.SetEswitch(at, mode); err != nil {
		return fmt.Errorf("device %s: eswitch mode %s: %w", at, mode, err)
	}
	return nil
}

// quietCard returns an error if a VM has one of a card's VFs, or if the host's default route uses it.
func (h *Host) quietCard(f *Function) error {
	list := []*Function{f}
	for _, vf := range f.VFs {
		list = append(list, h.read(vf))
	}
	h.holders(list)
	for _, x := range list {
		if x.Holder != "" {
			return fmt.Errorf("device %s: %s is in use by %s: end that first", f.Address, x.Address, x.Holder)
		}
		for _, n := range x.Net {
			if h.defaultRoute(n) {
				return fmt.Errorf("device %s is in use by this host: its default route goes over %s", f.Address, n)
			}
		}
	}
	return nil
}

// errNoEswitch reports a device whose driver provides no eswitch.
var errNoEswitch = errors.New("its driver shows no eswitch (devlink dev eswitch show)")

// Eswitch queries the mode as devlink(8) does, by the kernel's generic netlink.
func (netlinkLinks) Eswitch(at string) (string, error) {
	dev, err := netlink.DevLinkGetDeviceByName("pci", at)
	switch {
	case errors.Is(err, unix.EPERM):
		return "", err
	case err != nil:
		return "", errNoEswitch
	}
	if CheckEswitch(dev.Attrs.Eswitch.Mode) != nil {
		return "", errNoEswitch
	}
	return dev.Attrs.Eswitch.Mode, nil
}

func (netlinkLinks) SetEswitch(at, mode string) error {
	err := netlink.DevLinkSetEswitchMode(&netlink.DevlinkDevice{BusName: "pci", DeviceName: at}, mode)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("its driver cannot set it")
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w (some drivers want the VFs without a driver of the host first)", err)
	}
	return err
}
