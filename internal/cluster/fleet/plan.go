package fleet

import (
	"context"
	"fmt"
	"slices"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Plan makes the plan of c for described hosts, or else for those of placement.hosts, which are descriptions or hosts that
// ssh reaches; without any, for this host. It settles c.Accel, and returns the topologies and the ledger of the plan.
func Plan(ctx context.Context, described []string, c *spec.Cluster) (*plan.Plan, []topology.Host, plan.Ledger, error) {
	if len(described) == 0 && len(c.Placement.Hosts) > 0 && !slices.ContainsFunc(c.Placement.Hosts, IsDescription) {
		return PlanHosts(ctx, c)
	}
	list, ledger, err := describedHosts(described, c)
	if err != nil {
		return nil, nil, ledger, err
	}
	p, err := plan.Make(c, list, ledger)
	return p, list, ledger, err
}

// describedHosts reads the hosts that are described, or this one with the VMs that run
// on it, and settles how instructions run: what another host has is not known,
// and a plan for it is made to run well.
func describedHosts(names []string, c *spec.Cluster) ([]topology.Host, plan.Ledger, error) {
	if len(names) == 0 {
		names = c.Placement.Hosts
	}
	var ledger plan.Ledger
	if len(names) == 0 {
		h, err := topology.Read("/")
		if err != nil {
			return nil, ledger, err
		}
		accel, _, err := host.DetectAccel(c.Accel)
		if err != nil {
			return nil, ledger, err
		}
		c.Accel = string(accel)
		ledger, err := state.Ledger()
		return []topology.Host{*h}, ledger, err
	}
	if c.Accel == "auto" {
		c.Accel = "kvm"
	}
	var list []topology.Host
	seen := map[string]int{}
	for _, n := range names {
		h, err := topology.Open(n)
		if err != nil {
			return nil, ledger, err
		}
		// Captured trees of several machines are often named alike.
		if seen[h.Name]++; seen[h.Name] > 1 {
			h.Name = fmt.Sprintf("%s-%d", h.Name, seen[h.Name])
		}
		list = append(list, *h)
	}
	return list, ledger, nil
}
