// Package claim takes functions of this host's PCI devices for a cluster, so that no two clusters have the same.
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

// Taken are functions that the VMs cannot have, by address, and who has them or why.
type Taken map[string]string

// FindTaken returns the functions of this host that this user cannot have; nil where no VM of s wants one.
func FindTaken(s *spec.Cluster) (Taken, error) {
	d, err := Find(s, nil)
	if d == nil || err != nil {
		return nil, err
	}
	return d.taken, nil
}

// Claims are the host's functions that a cluster may take, and those it has.
type Claims struct {
	Host   *device.Host
	taken  Taken
	claims []*device.Claim
}

// Wanted reports whether any VM is to have a device.
func Wanted(s *spec.Cluster) bool {
	for i := range s.VMs {
		if len(s.VMs[i].Devices) > 0 {
			return true
		}
	}
	return false
}

// Find looks at which functions this user may have, of those in only where it is not nil;
// it returns nil where no VM wants one.
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
			continue // a card that is held takes its VFs along in a plan; and Bind refuses it as a whole
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

// Hold puts the functions of h that cannot be had into the ledger.
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

// Explain adds to the error of a plan that failed why VFs and devices of h could not be had.
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

// held returns what cannot be had; d may be nil.
func (d *Claims) held() Taken {
	if d == nil {
		return nil
	}
	return d.taken
}

// Take takes the functions of a plan. A *device.ClaimedError says which one another cluster
// was quicker with.
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

// Plan makes the plan, and takes its devices: when another cluster takes one in the
// meantime, the plan is made anew without it. Devices are those of the first host, which is this one.
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
