package plan

import (
	"fmt"
	"io"
	"strings"

	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// SVG draws a plan on its hosts: each VM in its colour on the CPUs, memory and devices that it holds. The ledger's
// VMs are grey.
func (p *Plan) SVG(w io.Writer, hosts []topology.Host, l Ledger) error {
	pic := topology.Picture{Title: "plan"}
	if p.Cluster != "" {
		pic.Title = "plan of " + p.Cluster
	}
	byHost := map[string][]int{}
	for i := range p.VMs {
		v := &p.VMs[i]
		byHost[v.Host] = append(byHost[v.Host], i)
		pic.Owners = append(pic.Owners, fmt.Sprintf("%s: %d %s, %s", v.Name, v.VCPUs, words.Plural(v.VCPUs, "vCPU", "vCPUs"), words.Bytes(v.MemoryBytes)))
	}
	for i := range hosts {
		h := &hosts[i]
		if len(byHost[h.Name]) == 0 && len(hosts) > 1 {
			continue
		}
		pic.Hosts = append(pic.Hosts, h)
		pic.Paints = append(pic.Paints, p.paint(h, byHost[h.Name], l))
	}
	if len(pic.Hosts) == 1 && len(p.VMs) > 0 {
		pic.Title += fmt.Sprintf(": %s on %s", words.Count(len(p.VMs), "VM", "VMs"), pic.Hosts[0].Name)
	}
	pic.Notes = append(pic.Notes, p.notes()...)
	if r := p.Region; r != nil {
		s := "region: " + words.Bytes(r.SizeBytes)
		if r.HostNode >= 0 {
			s += fmt.Sprintf(" on node %d", r.HostNode)
		}
		pic.Notes = append(pic.Notes, s)
	}
	return pic.SVG(w)
}

// notes returns the facts that the picture cannot show: VMs without pins, and the CPUs of the other threads of QEMU.
func (p *Plan) notes() []string {
	var free, names []string
	threads := map[string][]string{}
	for i := range p.VMs {
		v := &p.VMs[i]
		if len(v.Pins) == 0 {
			free = append(free, v.Name)
		}
		if len(v.EmulatorCPUs) > 0 {
			at := topology.FormatList(v.EmulatorCPUs)
			if threads[at] == nil {
				names = append(names, at)
			}
			threads[at] = append(threads[at], v.Name)
		}
	}
	var notes []string
	if len(free) > 0 {
		notes = append(notes, "not pinned: "+few(free)+" (the kernel chooses the CPUs)")
	}
	for i, at := range names {
		if i == 8 {
			notes = append(notes, "…")
			break
		}
		notes = append(notes, "QEMU's other threads of "+few(threads[at])+": CPUs "+at)
	}
	return notes
}

// few joins names; of many it lists only the first and the last.
func few(names []string) string {
	if len(names) > 4 {
		return names[0] + " … " + names[len(names)-1]
	}
	return strings.Join(names, ", ")
}

// paint marks the resources of the VMs on a host.
func (p *Plan) paint(h *topology.Host, vms []int, l Ledger) topology.Paint {
	out := topology.Paint{CPUs: map[int]topology.Mark{}, Memory: map[int][]topology.Share{}, Devices: map[string][]int{}}
	owner := map[int]int{} // core → VM
	for _, i := range vms {
		for _, pin := range p.VMs[i].Pins {
			for _, id := range pin {
				out.CPUs[id] = topology.Mark{Owner: i}
				if c := h.CPU(id); c != nil {
					owner[c.Core] = i
				}
			}
		}
		for _, n := range p.VMs[i].Nodes {
			for _, id := range n.HostNodes {
				out.Memory[id] = append(out.Memory[id], topology.Share{Owner: i, Bytes: n.MemoryBytes / uint64(len(n.HostNodes))})
			}
		}
		if len(p.VMs[i].Nodes) == 0 && len(h.Nodes) == 1 {
			out.Memory[h.Nodes[0].ID] = append(out.Memory[h.Nodes[0].ID], topology.Share{Owner: i, Bytes: p.VMs[i].MemoryBytes})
		}
		for _, d := range p.VMs[i].Devices {
			at := d.Address
			if d.PF != "" {
				at = d.PF
			}
			out.Devices[at] = append(out.Devices[at], i)
		}
	}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if _, ok := out.CPUs[c.ID]; ok {
			continue
		}
		if o, ok := owner[c.Core]; ok && c.Online {
			out.CPUs[c.ID] = topology.Mark{Owner: o, Kind: topology.Idle}
		}
	}
	for _, r := range p.Reserved {
		for _, id := range r.CPUs {
			if r.Host == h.Name {
				out.CPUs[id] = topology.Mark{Owner: -1, Kind: topology.Reserved}
			}
		}
	}
	for _, held := range l.Held {
		if held.Host != h.Name {
			continue
		}
		for _, id := range held.CPUs {
			out.CPUs[id] = topology.Mark{Owner: -1, Kind: topology.Held}
		}
	}
	return out
}
