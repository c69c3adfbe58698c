// Package slurm is the administrator's side of nearmetal under Slurm: the GRES of a host, a doctor that checks a
// site's configuration, and a working example. The plugin in slurm/ is the job's side.
package slurm

import (
	"fmt"
	"sort"
	"strings"

	"nearmetal/internal/topology"
)

// Names of nearmetal's generic resources in GresTypes.
const (
	GresVF     = "vf"
	GresRegion = "region"
)

// Gres is a host's offer to jobs in addition to CPUs and memory.
type Gres struct {
	Node string // Slurm's name of the host (NodeName)
	VFs  []VFs
	// RegionBytes is the total memory available to regions.
	RegionBytes uint64
	// Notes are the reasons why VFs are not offered, with the remedy: one line each.
	Notes []string
}

// VFs are virtual functions of one type on one node, each alone in its IOMMU group.
type VFs struct {
	Type   string // of the GRES: the driver of the physical function, such as mlx5
	Groups []int  // IOMMU groups: /dev/vfio/N
	Node   int    // NUMA node; -1: unknown
	Cores  []int  // Slurm's numbers of the cores on that node; none: any
}

// NewGres returns the offer of a host: every VF that is bound to vfio-pci and alone in its IOMMU group, and
// regionBytes of region (0: a quarter of the memory). node is the host's NodeName.
func NewGres(host *topology.Host, node string, regionBytes uint64) *Gres {
	g := &Gres{Node: node, RegionBytes: regionBytes}
	if regionBytes == 0 {
		var memory uint64
		for _, n := range host.Nodes {
			if n.GPU == "" {
				memory += n.MemoryBytes
			}
		}
		g.RegionBytes = memory / 4 &^ (1<<30 - 1)
		if g.RegionBytes == 0 {
			g.RegionBytes = memory / 4 &^ (1<<20 - 1)
		}
	}
	inGroup := map[int]int{}
	for i := range host.Devices {
		// A bridge in the group is harmless (vfio, Documentation/driver-api/vfio.rst).
		if d := &host.Devices[i]; d.Class>>16 != 6 {
			inGroup[d.Group]++
		}
	}
	cores := coresOf(host)
	for i := range host.Devices {
		pf := &host.Devices[i]
		if pf.TotalVFs > 0 && len(pf.VFs) == 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("%s has no VFs yet, of %d possible: nearmetal device enable-vfs %s N", pf.Address, pf.TotalVFs, pf.Address))
		}
		for _, address := range pf.VFs {
			vf := host.Device(address)
			switch {
			case vf == nil:
				g.Notes = append(g.Notes, fmt.Sprintf("%s: the VF is named by its PF, but is not there", address))
			case vf.Group < 0:
				g.Notes = append(g.Notes, fmt.Sprintf("%s has no IOMMU group: is the IOMMU on (intel_iommu=on, amd_iommu=on)?", address))
			case inGroup[vf.Group] > 1:
				g.Notes = append(g.Notes, fmt.Sprintf("%s shares IOMMU group %d with %d other devices, so it cannot be given to one VM alone", address, vf.Group, inGroup[vf.Group]-1))
			case vf.Driver != "vfio-pci":
				g.Notes = append(g.Notes, fmt.Sprintf("%s is not bound to vfio-pci: nearmetal device bind %s", address, address))
			default:
				g.add(typeOf(pf), vf, cores)
			}
		}
	}
	for i := range g.VFs {
		sort.Ints(g.VFs[i].Groups)
	}
	return g
}

func (g *Gres) add(kind string, vf *topology.Device, cores map[int][]int) {
	for i := range g.VFs {
		if g.VFs[i].Type == kind && g.VFs[i].Node == vf.Node {
			g.VFs[i].Groups = append(g.VFs[i].Groups, vf.Group)
			return
		}
	}
	v := VFs{Type: kind, Groups: []int{vf.Group}, Node: vf.Node}
	if len(cores) > 1 {
		v.Cores = cores[vf.Node]
	}
	g.VFs = append(g.VFs, v)
}

// typeOf returns the type of a PF's VFs: its driver's name without the suffix _core, or its vendor if it has no
// driver.
func typeOf(pf *topology.Device) string {
	name := strings.TrimSuffix(pf.Driver, "_core")
	if name == "" {
		return fmt.Sprintf("pci%04x", pf.VendorID)
	}
	return name
}

// coresOf returns Slurm's numbers of the cores on each node: cores are numbered socket by socket (gres.conf(5),
// Cores).
func coresOf(host *topology.Host) map[int][]int {
	type core struct{ pkg, cpu, node int }
	first := map[int]core{}
	for i := range host.CPUs {
		c := &host.CPUs[i]
		if !c.Online {
			continue
		}
		if f, ok := first[c.Core]; !ok || c.ID < f.cpu {
			first[c.Core] = core{c.Package, c.ID, c.Node}
		}
	}
	var all []core
	for _, c := range first {
		all = append(all, c)
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].pkg != all[j].pkg {
			return all[i].pkg < all[j].pkg
		}
		return all[i].cpu < all[j].cpu
	})
	cores := map[int][]int{}
	for number, c := range all {
		cores[c.node] = append(cores[c.node], number)
	}
	return cores
}

// Lines returns the host's lines of gres.conf.
func (g *Gres) Lines() []string {
	var lines []string
	for _, v := range g.VFs {
		file := topology.FormatList(v.Groups)
		if len(v.Groups) > 1 {
			file = "[" + file + "]"
		}
		line := fmt.Sprintf("NodeName=%s Name=%s Type=%s File=/dev/vfio/%s", g.Node, GresVF, v.Type, file)
		if len(v.Cores) > 0 {
			line += " Cores=" + topology.FormatList(v.Cores)
		}
		lines = append(lines, line)
	}
	return append(lines, fmt.Sprintf("NodeName=%s Name=%s Count=%s", g.Node, GresRegion, size(g.RegionBytes)))
}

// Value returns the host's Gres= of slurm.conf, such as vf:mlx5:4,region:8G.
func (g *Gres) Value() string {
	count := map[string]int{}
	var kinds, values []string
	for _, v := range g.VFs {
		if count[v.Type] == 0 {
			kinds = append(kinds, v.Type)
		}
		count[v.Type] += len(v.Groups)
	}
	for _, kind := range kinds {
		values = append(values, fmt.Sprintf("%s:%s:%d", GresVF, kind, count[kind]))
	}
	return strings.Join(append(values, GresRegion+":"+size(g.RegionBytes)), ",")
}

// Types returns GresTypes= of slurm.conf.
func (g *Gres) Types() string {
	if len(g.VFs) > 0 {
		return GresVF + "," + GresRegion
	}
	return GresRegion
}

// size formats bytes with the largest of Slurm's suffixes (1024 each) that represents them exactly.
func size(bytes uint64) string {
	suffix := ""
	for _, s := range []string{"K", "M", "G", "T"} {
		if bytes == 0 || bytes%1024 != 0 {
			break
		}
		bytes, suffix = bytes/1024, s
	}
	return fmt.Sprint(bytes, suffix)
}
