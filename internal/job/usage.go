package job

import (
	"context"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/host/device"
	"nearmetal/internal/load"
)

// Extras selects readings of Usage that cost more than the others.
type Extras struct {
	Inside bool // ask the VMs for the counters of their interfaces
	Nodes  bool // memory by NUMA node, for which the kernel walks all pages
}

// farTime bounds how long other hosts may take to answer.
const farTime = 20 * time.Second

// Usage returns what the VMs of the user's clusters use of their hosts; name restricts it to one cluster. A cluster over
// several hosts that does not answer is left out, unless it is the one that is named.
func Usage(ctx context.Context, name string, more Extras) ([]load.VM, error) {
	list, err := state.List()
	if err != nil {
		return nil, err
	}
	if name != "" {
		r, err := state.Find(name)
		if err != nil {
			return nil, err
		}
		list = []state.Record{*r}
	}
	vms := []load.VM{}
	for i := range list {
		r := &list[i]
		own := len(vms)
		switch {
		case r.State == state.Dead:
			continue
		case len(r.Remote) == 0:
			vms = append(vms, r.Usage(more.Nodes)...)
			readFunctions(r, vms[own:])
		case name != "" || r.State == state.Ready:
			far, err := usageElsewhere(ctx, r.Name, more.Nodes)
			if err != nil && name != "" { // of all clusters one may be ending
				return nil, err
			}
			vms = append(vms, far...)
		}
		if more.Inside && !r.Paused {
			readInside(ctx, r, vms[own:])
		}
	}
	return vms, nil
}

// readFunctions adds what the host's cards count of the VMs' virtual functions.
func readFunctions(r *state.Record, vms []load.VM) {
	if r.Plan == nil || len(r.Plan.VMs) != len(vms) {
		return
	}
	var h *device.Host
	for i := range vms {
		for _, d := range r.Plan.VMs[i].Devices {
			if d.PF == "" {
				continue
			}
			if h == nil {
				var err error
				if h, err = device.Open("", 0); err != nil {
					return
				}
			}
			if in, out, err := h.Carried(d.Address); err == nil {
				vms[i].Functions = append(vms[i].Functions, load.Function{Address: d.Address, Received: in, Sent: out})
			}
		}
	}
}

// insidePatience bounds how long the VMs may take to answer.
const insidePatience = 5 * time.Second

// readInside adds what the VMs themselves say of their interfaces; nothing for one that does not answer.
func readInside(ctx context.Context, r *state.Record, vms []load.VM) {
	ctx, cancel := context.WithTimeout(ctx, insidePatience)
	defer cancel()
	answers, err := Ask(ctx, r.Name, load.InsideCommand)
	if err != nil {
		return // it ends, or its owner is gone: what the host knows is there
	}
	for i := range vms {
		if out, ok := answers[vms[i].Name]; ok {
			vms[i].ReadInside(out)
		}
	}
}

// usageElsewhere asks the owner of a cluster over several hosts, which asks them.
func usageElsewhere(ctx context.Context, name string, nodes bool) ([]load.VM, error) {
	ctx, cancel := context.WithTimeout(ctx, farTime)
	defer cancel()
	c, err := client.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Usage(ctx, nodes)
}
