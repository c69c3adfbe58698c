package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/text"
)

// vfioDriver is the driver of functions that are passed through.
const vfioDriver = "vfio-pci"

// Bind passes a function to a user: it binds it to vfio-pci by its driver_override, and gives the user only the file
// of its group. If it fails or ctx ends, everything is restored. A function that is already bound is given to the
// user.
func (h *Host) Bind(ctx context.Context, at string, uid, gid int) error {
	return h.bind(ctx, "bind:"+at, at, uid, gid, nil)
}

// bind is Bind in a transaction called name; before, if not nil, is called before the user gets the function.
func (h *Host) bind(ctx context.Context, name, at string, uid, gid int, before func(at string) error) (err error) {
	if _, err := change.Recover(h.State()); err != nil {
		return err
	}
	f := h.read(at)
	if err := h.mayBind(f); err != nil {
		return err
	}
	if err := h.loadVFIO(ctx); err != nil {
		return err
	}
	t, err := h.begin(name)
	if err != nil {
		return err
	}
	defer func() { err = h.finish(t, err) }()
	if f.Driver != vfioDriver {
		if err := t.Record(h.driverChange(f)); err != nil {
			return err
		}
		if err := h.toVFIO(ctx, f); err != nil {
			return fmt.Errorf("device %s: %w", at, err)
		}
	}
	if before != nil {
		if err := before(at); err != nil {
			return err
		}
	}
	return h.hand(ctx, t, f, uid, gid)
}

// begin starts a transaction for a change of this host.
func (h *Host) begin(name string) (*change.Transaction, error) {
	t, err := change.Begin(h.State(), name)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, errors.New("must be root to change devices: sudo nearmetal device ...")
		}
		return nil, err
	}
	t.Under(h.root)
	return t, nil
}

// finish commits the transaction, or rolls it back after an error.
func (h *Host) finish(t *change.Transaction, err error) error {
	if err == nil {
		return t.Commit()
	}
	if _, bad := t.Rollback(); bad != nil {
		return fmt.Errorf("%w; and not all could be undone: %v (nearmetal host recover tries again)", err, bad)
	}
	return err
}

// toVFIO binds a function to vfio-pci.
func (h *Host) toVFIO(ctx context.Context, f *Function) error {
	if err := h.write(h.dev(f.Address, "driver_override"), vfioDriver); err != nil {
		return fmt.Errorf("driver_override: %w", reason(err))
	}
	if f.Driver != "" {
		if err := h.unbind(ctx, f.Address, f.Driver); err != nil {
			return err
		}
	}
	if err := h.write(h.path("/sys/bus/pci/drivers_probe"), f.Address); err != nil {
		return fmt.Errorf("drivers_probe: %w", reason(err))
	}
	return h.until(ctx, "its binding to vfio-pci", func() (bool, error) {
		if !h.there(f.Address) {
			return false, errGone
		}
		switch now := h.target(h.dev(f.Address, "driver")); now {
		case vfioDriver:
			return true, nil
		case "":
			return false, nil
		default:
			return false, fmt.Errorf("driver %s took it first", now)
		}
	})
}

var errGone = errors.New("it vanished: its physical function lost its VFs, or was unplugged")

// unbind unbinds a driver from a function and waits until it is unbound.
func (h *Host) unbind(ctx context.Context, at, driver string) error {
	if err := h.write(h.path(pciDrivers, driver, "unbind"), at); err != nil {
		return fmt.Errorf("driver %s cannot be taken off: %w", driver, reason(err))
	}
	return h.until(ctx, "the end of driver "+driver, func() (bool, error) {
		return h.target(h.dev(at, "driver")) == "", nil
	})
}

// bindTo binds a function to a driver and waits until it is bound.
func (h *Host) bindTo(ctx context.Context, at, driver string) error {
	if err := h.write(h.path(pciDrivers, driver, "bind"), at); err != nil {
		return fmt.Errorf("device %s: driver %s does not take it: %w", at, driver, reason(err))
	}
	return h.until(ctx, "driver "+driver+" of "+at, func() (bool, error) {
		return h.target(h.dev(at, "driver")) == driver, nil
	})
}

// hand gives the group's file to a user.
func (h *Host) hand(ctx context.Context, t *change.Transaction, f *Function, uid, gid int) error {
	file := groupFile(f.Group)
	err := h.until(ctx, file, func() (bool, error) {
		_, err := os.Lstat(h.path(file))
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("device %s: %w", f.Address, err)
	}
	c, err := h.ownerChange(file)
	if err == nil {
		err = t.Record(c)
	}
	if err == nil {
		err = h.give(file, uid, gid, 0o600)
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", f.Address, err)
	}
	if err := t.Record(journal.File(h.claimPath(f.Address))); err != nil {
		return err
	}
	return h.makeClaimFile(f.Address, uid, gid)
}

// loadVFIO loads the driver if it is a module that is not loaded yet.
func (h *Host) loadVFIO(ctx context.Context) error {
	if _, err := os.Stat(h.path(pciDrivers, vfioDriver)); err == nil {
		return nil
	}
	if h.root == "" {
		out, err := exec.CommandContext(ctx, "modprobe", vfioDriver).CombinedOutput()
		if err != nil {
			return fmt.Errorf("no driver vfio-pci: modprobe vfio-pci: %s", oneLine(string(out), err))
		}
	}
	return h.until(ctx, "driver vfio-pci", func() (bool, error) {
		_, err := os.Stat(h.path(pciDrivers, vfioDriver))
		return err == nil, nil
	})
}

// oneLine returns a program's output, or how it failed.
func oneLine(said string, err error) string {
	if s := strings.TrimSpace(said); s != "" {
		return text.ASCII(strings.ReplaceAll(s, "\n", "; "))
	}
	return err.Error()
}

// Release undoes everything that nearmetal changed of a function: its driver, its group's owner, its attributes. It
// returns the changes that it undid. A function that a VM uses is left unchanged.
func (h *Host) Release(at string) ([]journal.Change, error) {
	return h.release(at, -1, func(name string) bool {
		op, of, _ := strings.Cut(name, ":")
		_, leased, ok := leaseOf(name)
		return of == at && (op == "bind" || op == "set") || ok && leased == at
	})
}

// unbound is Release for the bindings made by a cluster of process own, and for nothing else: attributes that an
// administrator set (a VLAN) stay.
func (h *Host) unbound(at string, own int) ([]journal.Change, error) {
	return h.release(at, own, func(name string) bool { return name == "bind:"+at })
}

// release undoes the transactions selected by want; claims of process own do not count.
func (h *Host) release(at string, own int, want func(name string) bool) ([]journal.Change, error) {
	if f := h.read(at); h.there(at) {
		if who, pid := h.claim(at); who != "" && pid != own {
			return nil, &ClaimedError{at, who}
		}
		if h.held(f) {
			return nil, fmt.Errorf("device %s is in use by %s: end that first", at, h.whoHolds(at))
		}
	}
	return change.Undo(h.State(), want)
}
