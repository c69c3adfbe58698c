// Package claim reserves functions of this host's PCI devices for a cluster, so that no two clusters use the same
// one.
package claim

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Taken maps the address of each function that the VMs cannot use to its user, or to the reason.
type Taken map[string]string

// FindTaken returns the functions of this host that this user cannot use; nil if no VM of s requests a device.
func FindTaken(s *spec.Cluster) (Taken, error) {
	d, err := Find(s, nil)
	if d == nil || err != nil {
		return nil, err
	}
	return d.taken, nil
}

// Claims are the host's functions that a cluster may claim, and those it has claimed.
type Claims struct {
	Host   *device.Host
	taken  Taken
	claims []*device.Claim
}

// Wanted reports whether any VM requests a device.
func Wanted(s *spec.Cluster) bool {
	for i := range s.VMs {
		if len(s.VMs[i].Devices) > 0 {
			return true
		}
	}
	return false
}

// Find determines which functions this user may use, restricted to the addresses in only unless it is nil. It returns
// nil if no VM of s requests a device.
func Find(s *spec.Cluster, only []string) (*Claims, error) {
	if !Wanted(s) {
		return nil, nil
	}
	h, err := device.Open("/", 0)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	d := &Claims{Host: h, taken: Taken{}}
	list, err := h.List(true)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, f := range list {
		if len(f.VFs) > 0 {
			continue // A plan that excludes a card excludes its VFs too, and Bind refuses the card as a whole.
		}
		if only != nil && !slices.Contains(only, f.Address) {
			d.taken[f.Address] = "is not the job's"
			continue
		}
		if why := h.Usable(f); why != "" {
			d.taken[f.Address] = why
		}
	}
	return d, nil
}

// Hold marks the functions of h that are unavailable as used in the ledger.
func (t Taken) Hold(l *plan.Ledger, h *topology.Host) {
	if len(t) == 0 {
		return
	}
	held := plan.Held{Host: h.Name, Cluster: "others"}
	for a := range t {
		held.Devices = append(held.Devices, a)
	}
	sort.Strings(held.Devices)
	l.Held = append(l.Held, held)
}

// Explain adds the reasons why VFs and devices of h are unavailable to the error of a failed plan.
func (t Taken) Explain(err error, h *topology.Host) error {
	if err == nil {
		return nil
	}
	var why []string
	for a, w := range t {
		if f := h.Device(a); f != nil && f.IsVF() {
			why = append(why, a+" "+w)
		}
	}
	sort.Strings(why)
	const most = 4
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	if len(why) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(why, ", "))
}

// held returns the unavailable functions; d may be nil.
func (d *Claims) held() Taken {
	if d == nil {
		return nil
	}
	return d.taken
}

// Take claims the functions of a plan. It returns a *device.ClaimedError if another cluster has claimed one of them
// first.
func (d *Claims) Take(p *plan.Plan) error {
	if d == nil {
		return nil
	}
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			c, err := d.Host.Claim(v.Address, p.Cluster)
			if err != nil {
				d.Close()
				return err
			}
			d.claims = append(d.claims, c)
		}
	}
	return nil
}

// Close releases the claims.
func (d *Claims) Close() {
	if d == nil {
		return
	}
	for _, c := range d.claims {
		c.Close()
	}
	d.claims = nil
}

// Plan makes the plan and claims its devices. If another cluster claims one of them in the meantime, Plan replans
// without that device. Only devices of the first of hosts, which is this host, are claimed.
func (d *Claims) Plan(s *spec.Cluster, hosts []topology.Host, ledger plan.Ledger) (*plan.Plan, error) {
	for {
		l := ledger
		l.Held = append([]plan.Held(nil), ledger.Held...)
		d.held().Hold(&l, &hosts[0])
		p, err := plan.Make(s, hosts, l)
		if err != nil {
			return nil, d.held().Explain(err, &hosts[0])
		}
		err = d.Take(p)
		var lost *device.ClaimedError
		if !errors.As(err, &lost) {
			return p, err
		}
		if _, twice := d.taken[lost.Address]; twice {
			return nil, err
		}
		d.taken[lost.Address] = "is held by " + lost.Holder
	}
}
