package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// Write writes a plan as "text", "yaml" or "json". Text includes the reasons only with explain; the other formats
// always do.
func (p *Plan) Write(w io.Writer, format string, explain bool) error {
	switch format {
	case "text":
		_, err := io.WriteString(w, p.text(explain))
		return err
	case "yaml":
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(p); err != nil {
			return err
		}
		return e.Close()
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p)
	}
	return fmt.Errorf("format %q: text, yaml or json", format)
}

// text returns a plan for people: ASCII, in lines that can be cut.
func (p *Plan) text(explain bool) string {
	var b strings.Builder
	hosts := map[string]bool{}
	for i := range p.VMs {
		hosts[p.VMs[i].Host] = true
	}
	name := "cluster"
	if p.Cluster != "" {
		name += " " + p.Cluster
	}
	fmt.Fprintf(&b, "%s: %d %s on %d %s\n", name, len(p.VMs), words.Plural(len(p.VMs), "VM", "VMs"), len(hosts), words.Plural(len(hosts), "host", "hosts"))
	for i := range p.VMs {
		p.VMs[i].text(&b, explain)
	}
	if r := p.Region; r != nil {
		fmt.Fprintf(&b, "\nregion: %s, %s, in the VMs by %s", words.Bytes(r.SizeBytes), pagesOrShm(r), r.Device)
		if r.HostNode >= 0 {
			fmt.Fprintf(&b, ", on node %d", r.HostNode)
		}
		b.WriteByte('\n')
		for _, h := range r.Hosts {
			if h.HostNode >= 0 && len(r.Hosts) <= 16 {
				fmt.Fprintf(&b, "  on %s: node %d\n", h.Host, h.HostNode)
			}
		}
	}
	if explain && len(p.Reasons) > 0 {
		b.WriteByte('\n')
		for _, s := range p.Reasons {
			fmt.Fprintf(&b, "- %s\n", s)
		}
	}
	if len(p.Warnings) > 0 {
		b.WriteByte('\n')
		for _, s := range p.Warnings {
			fmt.Fprintf(&b, "warning: %s\n", s)
		}
	}
	return b.String()
}

func pagesOrShm(r *Region) string {
	if r.Backing == "hugetlb" {
		return pageName(r.PageBytes)
	}
	return "/dev/shm"
}

func (v *VM) text(b *strings.Builder, explain bool) {
	shape := fmt.Sprintf("%d %s x %d %s", v.Sockets, words.Plural(v.Sockets, "socket", "sockets"), v.Cores, words.Plural(v.Cores, "core", "cores"))
	if v.Dies > 1 {
		shape = fmt.Sprintf("%d %s x %d dies x %d %s", v.Sockets, words.Plural(v.Sockets, "socket", "sockets"), v.Dies, v.Cores, words.Plural(v.Cores, "core", "cores"))
	}
	if v.Threads > 1 {
		shape += fmt.Sprintf(" x %d threads", v.Threads)
	}
	fmt.Fprintf(b, "\n%s on %s: %d %s (%s), %s\n", v.Name, v.Host, v.VCPUs, words.Plural(v.VCPUs, "vCPU", "vCPUs"), shape, words.Bytes(v.MemoryBytes))
	if len(v.Nodes) == 0 && len(v.Pins) > 0 {
		fmt.Fprintf(b, "  vCPUs %s -> CPUs %s\n", idList(seq(0, v.VCPUs)), pinList(v.Pins, seq(0, v.VCPUs)))
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		fmt.Fprintf(b, "  node %d:", n.ID)
		if len(n.VCPUs) > 0 {
			fmt.Fprintf(b, " vCPUs %s", idList(n.VCPUs))
			if len(v.Pins) > 0 {
				fmt.Fprintf(b, " -> CPUs %s", pinList(v.Pins, n.VCPUs))
			}
			b.WriteByte(';')
		}
		fmt.Fprintf(b, " %s in %s", words.Bytes(n.MemoryBytes), pageName(n.PageBytes))
		switch {
		case len(n.HostNodes) == 1:
			fmt.Fprintf(b, " on host node %d", n.HostNodes[0])
		case len(n.HostNodes) > 1:
			fmt.Fprintf(b, " interleaved over host nodes %s", topology.FormatList(n.HostNodes))
		}
		if len(n.Distances) > 0 {
			fmt.Fprintf(b, "; distances %s", strings.Trim(fmt.Sprint(n.Distances), "[]"))
		}
		b.WriteByte('\n')
	}
	if len(v.L3) > 1 {
		var parts []string
		for _, g := range v.L3 {
			parts = append(parts, idList(g))
		}
		fmt.Fprintf(b, "  last-level caches: vCPUs %s\n", strings.Join(parts, " | "))
	}
	for i := range v.Devices {
		d := &v.Devices[i]
		fmt.Fprintf(b, "  device %s", d.Address)
		if d.Name != "" {
			fmt.Fprintf(b, " (%s)", d.Name)
		}
		if d.Node >= 0 {
			fmt.Fprintf(b, " on guest node %d", d.Node)
		}
		b.WriteByte('\n')
	}
	if len(v.EmulatorCPUs) > 0 {
		fmt.Fprintf(b, "  QEMU's own threads -> CPUs %s\n", topology.FormatList(v.EmulatorCPUs))
	}
	if explain {
		for _, s := range v.Reasons {
			fmt.Fprintf(b, "  - %s\n", s)
		}
	}
}

func seq(from, to int) []int {
	out := make([]int, 0, to-from)
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

func idList(ids []int) string {
	sorted := append([]int(nil), ids...)
	sort.Ints(sorted)
	return topology.FormatList(sorted)
}

// pinList returns the CPUs of vCPUs, in their order. Runs are written a-b, or a-b:2 if firmware numbers the packages
// alternately.
func pinList(pins [][]int, vcpus []int) string {
	var ids []int
	for _, v := range vcpus {
		if v < len(pins) {
			ids = append(ids, pins[v]...)
		}
	}
	var parts []string
	for i := 0; i < len(ids); {
		if i+1 == len(ids) {
			parts = append(parts, fmt.Sprint(ids[i]))
			break
		}
		step, j := ids[i+1]-ids[i], i+1
		for j+1 < len(ids) && ids[j+1]-ids[j] == step {
			j++
		}
		switch {
		case step > 0 && j-i >= 2 && step == 1:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[j]))
		case step > 0 && j-i >= 2:
			parts = append(parts, fmt.Sprintf("%d-%d:%d", ids[i], ids[j], step))
		default:
			parts = append(parts, fmt.Sprint(ids[i]))
			i++
			continue
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
