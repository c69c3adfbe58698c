package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
)

// The VMs' devices are tried before the cluster is ready: a port that nobody has brought up, a VLAN or a
// partition key that is not the others' would otherwise be seen by an MPI program only, which waits for ever.

const (
	// reachBound is how long the devices of this host's VMs have to reach each other.
	reachBound = 15 * time.Second
	// reachTry is how long one of them is given to answer before it is tried again.
	reachTry = 5 * time.Second
	// reachPause lies between two tries.
	reachPause = 200 * time.Millisecond
	// reachesAtOnce bounds the tries that are under way.
	reachesAtOnce = 64
	// closedPort is one on which nothing listens: that a VM refuses a connection is its answer.
	closedPort = 1
	// shownUnreached is how many pairs a message names.
	shownUnreached = 3
)

// end is a device of a VM by which it can be reached.
type end struct {
	vm   string
	addr netip.Addr
	name string // of the RDMA device, or the interface
	ib   bool
}

// deviceEnds are the devices of a VM that have an address, each address once.
func deviceEnds(vm string, list []guest.Device) []end {
	var ends []end
	for _, d := range list {
		a, err := netip.ParseAddr(d.IP)
		if err != nil || slices.ContainsFunc(ends, func(e end) bool { return e.addr == a }) {
			continue // soft RoCE has the address of its interface
		}
		ends = append(ends, end{vm: vm, addr: a, name: firstOf(d.RDMA, d.Net), ib: d.Layer == "InfiniBand"})
	}
	return ends
}

// portFault says in a line why the port of a device of vm cannot be used; "" where it can.
func portFault(vm string, d guest.Device) string {
	what := fmt.Sprintf("device %s of %s", firstOf(d.RDMA, d.Net, d.PCI), vm)
	if d.RDMA == "" {
		if d.Net != "" && (d.State == "down" || d.State == "lowerlayerdown" || d.State == "dormant") {
			return fmt.Sprintf("%s has no link (%s is %s): on the host look at the cable and, for a VF, at the state that its card has it in (ip link show)", what, d.Net, d.State)
		}
		return ""
	}
	switch {
	case d.State == "ACTIVE":
	case d.State == "INIT" && d.Layer == "InfiniBand":
		return fmt.Sprintf("%s stays in state INIT: no subnet manager has brought its port up (is opensm running, does it serve virtual ports, and has the VF GUIDs?)", what)
	case d.State == "DOWN":
		return fmt.Sprintf("%s has no link (its port is DOWN): on the host look at the cable and, for a VF, at the state that its card has it in (ip link show)", what)
	default:
		return fmt.Sprintf("%s cannot be used: its port is in state %s", what, firstOf(d.State, "unknown"))
	}
	if d.Layer == "Ethernet" && d.IP != "" && d.GID == "" {
		return fmt.Sprintf("%s has no GID for RoCE v2 that follows from its address %s: on the host set the card's RoCE mode to 2", what, d.IP)
	}
	return ""
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// unreached is a pair of VMs of which the first does not reach the second.
type unreached struct {
	from, to end
	why      error
}

// reach has every VM of from try to reach every VM of to over their devices, until ctx ends. dial opens a
// connection from a VM to an address with a port.
func reach(ctx context.Context, dial func(ctx context.Context, vm, addr string) error, from, to []end) []unreached {
	var mu sync.Mutex
	var failed []unreached
	var wg sync.WaitGroup
	places := make(chan struct{}, reachesAtOnce)
	for _, f := range from {
		for _, t := range to {
			if f.vm == t.vm {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				places <- struct{}{}
				defer func() { <-places }()
				if err := reachOne(ctx, dial, f, t); err != nil {
					mu.Lock()
					failed = append(failed, unreached{f, t, err})
					mu.Unlock()
				}
			}()
		}
	}
	wg.Wait()
	sort.Slice(failed, func(i, k int) bool {
		a, b := failed[i], failed[k]
		return a.from.addr.Less(b.from.addr) || a.from.addr == b.from.addr && a.to.addr.Less(b.to.addr)
	})
	return failed
}

// reachOne tries until it is answered or ctx ends; the error is that of the last try.
func reachOne(ctx context.Context, dial func(ctx context.Context, vm, addr string) error, f, t end) error {
	last := errors.New("no answer")
	for {
		try, cancel := context.WithTimeout(ctx, reachTry)
		err := dial(try, f.vm, netip.AddrPortFrom(t.addr, closedPort).String())
		cancel()
		if err == nil || strings.Contains(err.Error(), "Connection refused") {
			return nil
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(reachPause):
		}
	}
}

// unreachedLine says which pairs do not reach each other, in one line.
func unreachedLine(list []unreached) string {
	var pairs []string
	for i, u := range list {
		if i == shownUnreached {
			pairs = append(pairs, fmt.Sprintf("and %d pairs more", len(list)-i))
			break
		}
		pairs = append(pairs, fmt.Sprintf("%s (%s, %s) does not reach %s (%s): %v", u.from.vm, u.from.name, u.from.addr, u.to.vm, u.to.addr, u.why))
	}
	remedy := "are they in the same VLAN, and is their MTU not above the switch's?"
	if list[0].from.ib {
		remedy = "are they in the same partition (pkey), one of them as a full member?"
	}
	return "devices: " + strings.Join(pairs, ", ") + "; " + remedy
}

// dialFrom opens a connection from a VM of this host, and closes it.
func (c *Cluster) dialFrom(ctx context.Context, vm, addr string) error {
	for _, v := range c.vms {
		if v.plan.Name == vm {
			conn, err := v.agent.DialTCP(ctx, "", addr)
			if err == nil {
				conn.Close()
			}
			return err
		}
	}
	return fmt.Errorf("no VM %s", vm)
}

// ends are the devices of this host's VMs: all of them, and the first of each VM, from which the kernel opens
// connections to the others.
func (c *Cluster) ends() (all, first []end) {
	for _, v := range c.Record().VMs {
		list := deviceEnds(v.Name, v.Devices)
		all = append(all, list...)
		first = append(first, list[:min(1, len(list))]...)
	}
	return all, first
}

// reachStart tries the devices of this host's VMs. What is wrong is reported and written down, or with strict
// is an error.
func (c *Cluster) reachStart(ctx context.Context, o Options) error {
	var faults []string
	for _, v := range c.Record().VMs {
		for _, d := range v.Devices {
			if why := portFault(v.Name, d); why != "" {
				faults = append(faults, why)
			}
		}
	}
	if len(faults) == 0 {
		bound, cancel := context.WithTimeout(ctx, reachBound)
		defer cancel()
		all, first := c.ends()
		if failed := reach(bound, c.dialFrom, first, all); len(failed) > 0 {
			faults = append(faults, unreachedLine(failed))
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(faults) == 0 {
		return nil
	}
	if o.Spec.Placement.Strict {
		return fmt.Errorf("%s (leave out --strict to start nevertheless)", faults[0])
	}
	for i, f := range faults {
		if i == shownDifferences {
			o.Events.notice(fmt.Sprintf("%d devices more cannot be used (nearmetal ps --devices lists them)", len(faults)-i))
			break
		}
		o.Events.notice(f)
	}
	return c.write(func(r *Record) { r.DeviceFaults = faults })
}

// reachHosts tries the devices of the other hosts' VMs, which may boot later, until each answers or the
// cluster ends.
func (c *Cluster) reachHosts() {
	t := c.wiring.overlay
	_, from := c.ends()
	if t == nil || len(from) == 0 {
		return
	}
	for host := range t.Hosts {
		if host == t.Self {
			continue
		}
		to, err := c.endsOf(host)
		if err != nil {
			c.hostDevices(host, false, err.Error())
			continue
		}
		go func() {
			for t.ctx.Err() == nil {
				bound, cancel := context.WithTimeout(t.ctx, reachBound)
				failed := reach(bound, c.dialFrom, from, to)
				cancel()
				if len(failed) == 0 {
					c.hostDevices(host, true, "")
					return
				}
				c.hostDevices(host, false, unreachedLine(failed))
			}
		}()
	}
}

// endsOf are the devices of another host's VMs, which are of the same kind as this one's, under addresses that
// follow from their numbers.
func (c *Cluster) endsOf(host int) ([]end, error) {
	t, r := c.wiring.overlay, c.Record()
	var list []end
	counts := c.deviceCounts(r.Plan, host)
	for k, name := range t.Hosts[host].VMs {
		if k >= len(counts) {
			break
		}
		// A VM here with as many devices is like it.
		like := slices.IndexFunc(r.Plan.VMs, func(v plan.VM) bool { return len(v.Devices) == counts[k] })
		if like < 0 {
			continue
		}
		theirs := deviceEnds(name, r.VMs[like].Devices)
		for i := range theirs {
			var err error
			if theirs[i].addr, err = c.counterpart(r, like, host, k, i); err != nil {
				return nil, err
			}
		}
		list = append(list, theirs...)
	}
	return list, nil
}

// counterpart is the address of the nth device with an address (from 0) of VM number k on a host, which is like VM
// number like here.
func (c *Cluster) counterpart(r Record, like, host, k, nth int) (netip.Addr, error) {
	seen := map[string]bool{}
	for i, d := range r.VMs[like].Devices {
		if d.IP == "" || seen[d.IP] {
			continue
		}
		if d.Kind == "rxe" {
			break
		}
		if seen[d.IP] = true; len(seen) <= nth {
			continue
		}
		subnet, err := netip.ParsePrefix(r.Spec.Network.DeviceSubnet)
		if err != nil {
			return netip.Addr{}, err
		}
		return c.deviceAddress(subnet, r.Plan, host, k, i)
	}
	return c.wiring.overlay.addrs[host][k].IP, nil
}

// hostDevices notes in the record whether a host's VMs answer over their devices.
func (c *Cluster) hostDevices(host int, reached bool, fault string) {
	c.changeHost(host, func(h *RecordHost) { h.DevicesReached, h.DeviceFault = reached, fault })
}

// AwaitDevices waits until the devices of all hosts' VMs have answered, or ctx ends; then it says in one line
// which have not. "" where all have, or there are none.
func AwaitDevices(ctx context.Context, name string) (string, error) {
	for {
		r, err := Find(name)
		if err != nil {
			return "", err
		}
		why := r.devicesUnreached()
		if why == "" {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return why, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// devicesUnreached says which host's devices have not answered yet.
func (r *Record) devicesUnreached() string {
	any := false
	for _, v := range r.VMs {
		any = any || len(deviceEnds(v.Name, v.Devices)) > 0
	}
	for _, h := range r.Overlay {
		if any && !h.Self && !h.DevicesReached {
			return firstOf(h.DeviceFault, fmt.Sprintf("the devices of the VMs of host %s have not answered yet", h.Name))
		}
	}
	return ""
}
