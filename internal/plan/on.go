package plan

// On returns the plan of the VMs on one host, by the host's name in p, with VMs numbered from 0. The region is on
// every host or on none, because MPI programs that span all hosts need it everywhere or nowhere.
func (p *Plan) On(host string) *Plan {
	own := *p
	own.VMs, own.Reserved, own.Reasons, own.Warnings = nil, nil, nil, nil
	for _, v := range p.VMs {
		if v.Host == host {
			v.Index = len(own.VMs)
			own.VMs = append(own.VMs, v)
		}
	}
	for _, r := range p.Reserved {
		if r.Host == host {
			own.Reserved = append(own.Reserved, r)
		}
	}
	if own.Region == nil {
		return &own
	}
	r := *own.Region
	for _, h := range r.Hosts {
		if h.Host == host {
			r.HostNode = h.HostNode
		}
	}
	r.Hosts = nil
	own.Region = &r
	return &own
}

// crowded reports whether a host has two of the VMs.
func crowded(vms []VM) bool {
	seen := map[string]bool{}
	for _, v := range vms {
		if seen[v.Host] {
			return true
		}
		seen[v.Host] = true
	}
	return false
}
