package plan

// devices assigns functions to a VM, and presents each one on the guest node whose host node is nearest to it.
func (m *maker) devices(vm *VM, r *capacity, sp *placement, pools [][]string) {
	for _, k := range sp.units {
		pool := &r.pools[k]
		d := Device{Kind: "vfio", Address: pools[k][0], Node: -1, HostNode: -1}
		pools[k] = pools[k][1:]
		if len(pool.names) > 0 {
			d.Name = pool.names[0]
		}
		d.Dynamic = pool.dynamic
		if !pool.one {
			d.PF = pool.pf
		}
		if dev := r.host.Device(d.Address); dev != nil {
			for _, b := range dev.BARs {
				d.BARBytes += b
			}
			if dev.PF != "" {
				d.PF = dev.PF
			}
			d.HideROM = !dev.IsVF() && isNetworkCard(dev.Class)
		}
		if pool.node >= 0 {
			d.HostNode = r.nodes[pool.node].id
			best := 0
			for i := range vm.Nodes {
				for _, id := range vm.Nodes[i].HostNodes {
					j := r.host.NodeIndex(id)
					if dist := int(r.dist[pool.node][j]); d.Node < 0 || dist < best {
						d.Node, best = i, dist
					}
				}
			}
		}
		vm.Devices = append(vm.Devices, d)
	}
}

// isNetworkCard reports whether a PCI class (24 bits) is a network controller's, or an InfiniBand controller's of the
// earlier serial bus class (PCI Code and ID Assignment Specification).
func isNetworkCard(class int) bool { return class>>16 == 0x02 || class>>8 == 0x0c06 }
