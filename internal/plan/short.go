package plan

import (
	"fmt"
	"sort"
	"strings"
)

// Short returns one line on how the VMs of the plan run: on CPUs of their own or not, emulated or not, in which
// pages. accel is the cluster's, kvm or tcg.
func (p *Plan) Short(accel string) string {
	pinned := 0
	pages := map[uint64]bool{}
	for i := range p.VMs {
		vm := &p.VMs[i]
		if len(vm.Pins) > 0 {
			pinned++
		}
		if len(vm.Nodes) == 0 {
			pages[0] = true
		}
		for k := range vm.Nodes {
			pages[vm.Nodes[k].PageBytes] = true
		}
	}
	parts := []string{"vCPUs not pinned"}
	switch {
	case pinned == len(p.VMs):
		parts[0] = "vCPUs pinned"
	case pinned > 0:
		parts[0] = fmt.Sprintf("vCPUs of %d of %d VMs pinned", pinned, len(p.VMs))
	}
	var sizes []uint64
	for b := range pages {
		sizes = append(sizes, b)
	}
	sort.Slice(sizes, func(i, j int) bool { return sizes[i] > sizes[j] })
	var names []string
	for _, b := range sizes {
		names = append(names, pageName(b))
	}
	parts = append(parts, "memory in "+strings.Join(names, " and "))
	if accel == "tcg" {
		parts = append(parts, "emulated (TCG): timings are not meaningful")
	}
	return strings.Join(parts, "; ")
}
