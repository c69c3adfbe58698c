package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
)

// The VMs' devices are tested before the cluster is ready. Otherwise a port that is down, or a different VLAN or
// partition key, would be noticed only by an MPI program, which waits forever.

const (
	// ReachBound is the time in which the devices of this host's VMs must reach each other.
	ReachBound = 15 * time.Second
	// reachTry is the timeout of one attempt.
	reachTry = 5 * time.Second
	// reachPause is the pause between two attempts.
	reachPause = 200 * time.Millisecond
	// reachesAtOnce bounds the concurrent attempts.
	reachesAtOnce = 64
	// closedPort is a port on which nothing listens: a refused connection is the VM's answer.
	closedPort = 1
	// shownUnreached is the maximum number of pairs named in a message.
	shownUnreached = 3
)

// End is a device of a VM by which the VM can be reached.
type End struct {
	VM         string
	Addr       netip.Addr
	Name       string // of the RDMA device, or of the interface
	InfiniBand bool
}

// Ends returns the devices of a VM that have an address, one per address.
func Ends(vm string, list []guest.Device) []End {
	var ends []End
	for _, d := range list {
		a, err := netip.ParseAddr(d.IP)
		if err != nil || slices.ContainsFunc(ends, func(e End) bool { return e.Addr == a }) {
			continue // soft RoCE has the address of its interface
		}
		ends = append(ends, End{VM: vm, Addr: a, Name: cmp.Or(d.RDMA, d.Net), InfiniBand: d.Layer == "InfiniBand"})
	}
	return ends
}

// PortFault returns a line that states why the port of a device of vm cannot be used; "" if it can.
func PortFault(vm string, d guest.Device) string {
	what := fmt.Sprintf("device %s of %s", cmp.Or(d.RDMA, d.Net, d.PCI), vm)
	if d.RDMA == "" {
		if d.Net != "" && (d.State == "down" || d.State == "lowerlayerdown" || d.State == "dormant") {
			return fmt.Sprintf("%s has no link (%s is %s): on the host look at the cable and, for a VF, at the state that its card has it in (ip link show)", what, d.Net, d.State)
		}
		return ""
	}
	switch {
	case d.State == "ACTIVE":
	case d.State == "INIT" && d.Layer == "InfiniBand":
		return fmt.Sprintf("%s stays in state INIT: no subnet manager has brought its port up (is opensm running, does it serve virtual ports (virt_enabled 2 in opensm.conf), and has the VF GUIDs?)", what)
	case d.State == "DOWN" && d.Layer == "InfiniBand":
		return fmt.Sprintf("%s has no link (its port is DOWN): on the host look at the cable and, for a VF, at its policy, which is Down until it is set (nearmetal device set VF --policy follow)", what)
	case d.State == "DOWN":
		return fmt.Sprintf("%s has no link (its port is DOWN): on the host look at the cable and, for a VF, at the state that its card has it in (ip link show)", what)
	default:
		return fmt.Sprintf("%s cannot be used: its port is in state %s", what, cmp.Or(d.State, "unknown"))
	}
	if d.Layer == "Ethernet" && d.IP != "" && d.GID == "" {
		return fmt.Sprintf("%s has no GID for RoCE v2 that follows from its address %s: on the host set the card's RoCE mode to 2", what, d.IP)
	}
	return ""
}

// NoRDMA returns an error if a VM has RDMA devices and none is ACTIVE: an MPI library would use TCP without a word.
func NoRDMA(vm string, list []guest.Device) error {
	why := ""
	for _, d := range list {
		if d.RDMA == "" {
			continue
		}
		if d.State == "ACTIVE" {
			return nil
		}
		if why == "" {
			why = PortFault(vm, d)
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%s has no RDMA device that is ACTIVE, so that MPI would use TCP: %s (--allow-tcp starts it nevertheless)", vm, why)
}

// Unreached is a pair of VMs of which the first does not reach the second.
type Unreached struct {
	From, To End
	Why      error
}

// Dial opens a connection from a VM of this host to an address with a port, and closes it.
type Dial func(ctx context.Context, vm, addr string) error

// Reach makes every VM of from connect to every VM of to over their devices, until ctx ends. It returns the pairs
// without an answer.
func Reach(ctx context.Context, dial Dial, from, to []End) []Unreached {
	var mu sync.Mutex
	var failed []Unreached
	var g errgroup.Group
	g.SetLimit(reachesAtOnce)
	for _, f := range from {
		for _, t := range to {
			if f.VM == t.VM {
				continue
			}
			g.Go(func() error {
				if err := reachOne(ctx, dial, f, t); err != nil {
					mu.Lock()
					failed = append(failed, Unreached{f, t, err})
					mu.Unlock()
				}
				return nil
			})
		}
	}
	g.Wait()
	sort.Slice(failed, func(i, k int) bool {
		a, b := failed[i], failed[k]
		return a.From.Addr.Less(b.From.Addr) || a.From.Addr == b.From.Addr && a.To.Addr.Less(b.To.Addr)
	})
	return failed
}

// reachOne connects repeatedly until it gets an answer or ctx ends; it returns the error of the last attempt.
func reachOne(ctx context.Context, dial Dial, f, t End) error {
	last := errors.New("no answer")
	for {
		try, cancel := context.WithTimeout(ctx, reachTry)
		err := dial(try, f.VM, netip.AddrPortFrom(t.Addr, closedPort).String())
		cancel()
		if err == nil || errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		switch {
		case errors.Is(err, guest.ErrNoNumber): // perhaps a refusal, which would be an answer
			last = fmt.Errorf("%w (the agent of %s is of an older nearmetal and reports no error number: update nearmetal in the VM's image)", err, f.VM)
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(reachPause):
		}
	}
}

// UnreachedLine returns one line that names the pairs that do not reach each other.
func UnreachedLine(list []Unreached) string {
	var pairs []string
	for i, u := range list {
		if i == shownUnreached {
			pairs = append(pairs, fmt.Sprintf("and %d pairs more", len(list)-i))
			break
		}
		pairs = append(pairs, fmt.Sprintf("%s (%s, %s) does not reach %s (%s): %v", u.From.VM, u.From.Name, u.From.Addr, u.To.VM, u.To.Addr, u.Why))
	}
	remedy := "are they in the same VLAN, and is their MTU not above the switch's?"
	if list[0].From.InfiniBand {
		remedy = "are they in the same partition (pkey), one of them as a full member?"
	}
	return "devices: " + strings.Join(pairs, ", ") + "; " + remedy
}
