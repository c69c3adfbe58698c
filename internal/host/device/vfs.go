package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
)

// EnableVFs makes n virtual functions of a PF, to which no driver of the host is bound, with addresses or GUIDs that
// are stable and unique for this host and VF. It waits until each exists with its IOMMU group. If it fails or ctx
// ends, everything is restored.
func (h *Host) EnableVFs(ctx context.Context, at string, n int) (err error) {
	if _, err := change.Recover(h.State()); err != nil {
		return err
	}
	f := h.read(at)
	switch {
	case f.Kind == VF:
		return fmt.Errorf("device %s is itself a VF: name its physical function %s", at, f.PF)
	case f.Kind != PF:
		return fmt.Errorf("device %s has no SR-IOV: %s", at, h.noSRIOV(f))
	case n < 1:
		return errors.New("at least one VF: disable-vfs takes them away")
	case n > f.TotalVFs:
		return fmt.Errorf("device %s can have %d VFs, not %d%s", at, f.TotalVFs, n, moreVFs(f, n))
	case len(f.VFs) == n:
		return nil
	case len(f.VFs) > 0:
		return fmt.Errorf("device %s has %d VFs, and the kernel changes their number by way of none only: nearmetal device disable-vfs %s first", at, len(f.VFs), at)
	case f.Driver == "":
		return fmt.Errorf("device %s has no driver, which VFs need: modprobe it (lspci -k -s %s says which)", at, at)
	case f.Driver == vfioDriver:
		return fmt.Errorf("device %s is passed through as a whole: nearmetal device release %s first", at, at)
	}
	t, err := h.begin("enable-vfs:" + at)
	if err != nil {
		return err
	}
	defer func() { err = h.finish(t, err) }()
	return h.makeVFs(ctx, t, f, n)
}

// makeVFs does the work of EnableVFs in a transaction.
func (h *Host) makeVFs(ctx context.Context, t *change.Transaction, f *Function, n int) error {
	dir := pciDevices + "/" + f.Address
	autoprobe := change.Value{Path: dir + "/sriov_drivers_autoprobe", Value: "0"}
	if _, err := os.Lstat(h.path(autoprobe.Path)); err == nil { // since Linux 4.13
		if err := t.Write(autoprobe); err != nil {
			return err
		}
		defer t.Write(change.Value{Path: autoprobe.Path, Value: "1"})
	}
	if err := t.Write(change.Value{Path: dir + "/sriov_numvfs", Value: strconv.Itoa(n)}); err != nil {
		return fmt.Errorf("device %s: the kernel makes no %d VFs: %w", f.Address, n, h.whyNoVFs(f, err))
	}
	for i := 0; i < n; i++ {
		if err := h.awaitVF(ctx, f.Address, i); err != nil {
			return fmt.Errorf("device %s: VF %d: %w", f.Address, i, err)
		}
	}
	// The VFs' attributes end with them, so only the VFs need an undo.
	return h.nameVFs(f, n)
}

// awaitVF waits until a VF exists with its group.
func (h *Host) awaitVF(ctx context.Context, pf string, i int) error {
	grouped := h.read(pf).Group >= 0
	return h.until(ctx, "the VF", func() (bool, error) {
		if !h.there(pf) {
			return false, errors.New("its physical function vanished")
		}
		vf := h.target(h.dev(pf, "virtfn"+strconv.Itoa(i)))
		if vf == "" || !h.there(vf) || h.attr(h.dev(vf, "class")) == "" {
			return false, nil
		}
		return !grouped || h.target(h.dev(vf, "iommu_group")) != "", nil
	})
}

// whyNoVFs adds the remedy to the kernel's errors.
func (h *Host) whyNoVFs(f *Function, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), !h.there(f.Address):
		return errGone
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EIO):
		return fmt.Errorf("%w (the firmware left no room for the VFs' BARs or bus numbers: enable SR-IOV and above-4G decoding there, or start the kernel with pci=realloc)", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (run it as root)", err)
	}
	return err
}

// noSRIOV returns what may be missing.
func (h *Host) noSRIOV(f *Function) string {
	if f.Vendor == Mellanox {
		return fmt.Sprintf("turn it on in the card's firmware: nearmetal device set %s --firmware-vfs 8, then a cold boot", f.Address)
	}
	return "the card has none, or it is off in the card's or the host's firmware"
}

func moreVFs(f *Function, n int) string {
	if f.Vendor != Mellanox {
		return ""
	}
	return fmt.Sprintf("; its firmware can be set to more: nearmetal device set %s --firmware-vfs %d, then a cold boot", f.Address, n)
}

// DisableVFs removes a PF's VFs, after undoing the changes made to them. It returns the changes that it undid. It
// does nothing if one of them is in use.
func (h *Host) DisableVFs(ctx context.Context, at string) (did []journal.Change, err error) {
	f := h.read(at)
	if f.Kind != PF {
		return nil, fmt.Errorf("device %s is not a physical function with SR-IOV", at)
	}
	var vfs []*Function
	for _, vf := range f.VFs {
		vfs = append(vfs, h.read(vf))
	}
	h.holders(vfs)
	for _, vf := range vfs {
		if vf.Holder != "" {
			return nil, fmt.Errorf("device %s: its VF %s is in use by %s: end that first", at, vf.Address, vf.Holder)
		}
		for _, n := range vf.Net {
			if err := h.quietInterface(vf.Address, n); err != nil {
				return nil, err
			}
		}
	}
	did, err = change.Undo(h.State(), func(name string) bool {
		op, of, _ := strings.Cut(name, ":")
		for _, vf := range f.VFs {
			if of == vf && (op == "bind" || op == "set") {
				return true
			}
		}
		return of == at && op == "enable-vfs"
	})
	if err != nil {
		return did, err
	}
	if made, _ := h.number(h.dev(at, "sriov_numvfs")); made > 0 { // not made by nearmetal
		t, err := h.begin("disable-vfs:" + at)
		if err != nil {
			return did, err
		}
		if err := h.finish(t, t.Write(change.Value{Path: pciDevices + "/" + at + "/sriov_numvfs", Value: "0"})); err != nil {
			return did, err
		}
	}
	return did, h.until(ctx, "the end of the VFs of "+at, func() (bool, error) {
		for _, vf := range f.VFs {
			if h.there(vf) {
				return false, nil
			}
		}
		return true, nil
	})
}
