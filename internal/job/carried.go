package job

import (
	"context"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/load"
	"nearmetal/internal/traffic"
)

// carriedTime bounds the time in which VMs report their interfaces' counters.
const carriedTime = 10 * time.Second

// Uncounted reports whether no rank of a cluster can count its messages: the cluster has several VMs, and none has
// the provider. The provider is not installed only to count, because it would change the messages' route.
func Uncounted(r *state.Record) bool { return len(r.VMs) > 1 && r.Fabric == "" && r.Promised == 0 }

// Interfaces returns the bytes that the interfaces of each VM of a cluster have carried since its boot, by the VMs'
// names. A VM that does not answer is omitted.
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

// Carried returns the bytes that interfaces of VMs carried between two readings, in the order of the VMs. Interfaces
// missing in a reading are omitted, as are counters that decreased, because their device was removed and added again.
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
