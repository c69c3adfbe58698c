package device

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/journal"
)

// Usable returns the reason why this user cannot use a function for a VM now; "" if they can.
func (h *Host) Usable(f *Function) string {
	if f.Holder != "" {
		return "is in use by " + f.Holder
	}
	if f.VFIO == "" {
		if os.Geteuid() != 0 {
			return "is not handed to you (root: nearmetal device bind " + f.Address + " --user " + userName(os.Geteuid()) + ")"
		}
		if err := h.mayBind(f); err != nil {
			return "cannot be had: " + err.Error()
		}
		return ""
	}
	if unix.Access(h.path(f.VFIO), unix.R_OK|unix.W_OK) != nil {
		return "is handed to " + f.Owner
	}
	return ""
}

// Modalias returns the string that identifies the module of a function's driver (modules.alias).
func (h *Host) Modalias(at string) string { return h.attr(h.dev(at, "modalias")) }

// kindBound is a function that a cluster bound for itself.
const kindBound = "device"

func init() {
	journal.Register(kindBound, func(c journal.Change) error {
		if !address().MatchString(c.Args["address"]) {
			return fmt.Errorf("%.40q is not a PCI address", c.Args["address"])
		}
		return nil
	}, undoBound, func(c journal.Change) string { return "device " + c.Args["address"] })
}

// Bound returns the change of a cluster that binds a function for its VMs: undoing it reverts only that.
func Bound(at string) journal.Change {
	return journal.Change{Kind: kindBound, Args: map[string]string{"address": at}}
}

func undoBound(c journal.Change) (bool, error) {
	h, err := Open("/", 0)
	if err != nil {
		return false, err
	}
	at := c.Args["address"]
	// The kernel closes a QEMU's files a moment after its end.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && h.held(h.read(at)); {
		time.Sleep(poll)
	}
	did, err := h.unbound(at, os.Getpid())
	if errors.As(err, new(*ClaimedError)) {
		return false, nil // the next cluster already has it, still bound
	}
	return len(did) > 0, err
}
