package job

import (
	"context"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/load"
	"nearmetal/internal/traffic"
)

// carriedTime bounds how long VMs may take to say what their interfaces carried.
const carriedTime = 10 * time.Second

// Uncounted says whether no rank of a cluster can count its messages: it has several VMs, and none has the provider. The
// provider is not put there for the count alone: messages would go another way than without it.
func Uncounted(r *state.Record) bool { return len(r.VMs) > 1 && r.Fabric == "" && r.Promised == 0 }

// Interfaces returns what the interfaces of each VM of a cluster have carried since its boot, by the VMs' names. A VM that
// does not answer is not there.
func Interfaces(name string) map[string][]load.Interface {
	ctx, cancel := context.WithTimeout(context.Background(), carriedTime)
	defer cancel()
	answers, err := Ask(ctx, name, load.InsideCommand)
	if err != nil {
		return nil
	}
	list := map[string][]load.Interface{}
	for vm, out := range answers {
		var v load.VM
		v.ReadInside(out)
		list[vm] = v.Interfaces
	}
	return list
}

// Carried returns what the interfaces of VMs carried between two readings, in the order of the VMs. What is not in both is
// left out, and so is a counter that went back: its device was taken away and came again.
func Carried(vms []state.VMRecord, before, after map[string][]load.Interface) []traffic.Carried {
	list := []traffic.Carried{}
	for _, v := range vms {
		for _, now := range after[v.Name] {
			for _, then := range before[v.Name] {
				if then.Name == now.Name && then.RDMA == now.RDMA && then.Received <= now.Received && then.Sent <= now.Sent {
					list = append(list, traffic.Carried{VM: v.Name, Interface: now.Name, Received: now.Received - then.Received, Sent: now.Sent - then.Sent})
				}
			}
		}
	}
	return list
}
