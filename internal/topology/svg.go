package topology

import (
	"fmt"
	"html"
	"io"
	"sort"
	"strings"

	"nearmetal/internal/words"
)

// Paint is what a plan adds to the picture of a host. Its zero value adds nothing.
type Paint struct {
	CPUs    map[int]Mark     // by CPU ID
	Memory  map[int][]Share  // by node ID
	Devices map[string][]int // by PCI address (a card's for its VFs): the owners that use it
}

// Mark defines how a CPU is drawn.
type Mark struct {
	Owner int // index of the owner, -1: none
	Kind  MarkKind
}

// MarkKind is how an owner uses a CPU.
type MarkKind int

// The kinds of marks.
const (
	Used     MarkKind = iota // a vCPU runs on it
	Idle                     // the sibling of a used one, left idle
	Reserved                 // kept for the host
	Held                     // used by another cluster's VM
)

// Share is the memory of a node that belongs to an owner.
type Share struct {
	Owner int
	Bytes uint64
}

// Picture is a drawing of one or more hosts, with the owners' legend.
type Picture struct {
	Title  string
	Hosts  []*Host
	Paints []Paint  // one for each host, or none
	Owners []string // legend of each owner
	Notes  []string // lines below the legend
}

// Sizes of the drawing, in pixels.
const (
	svgThreadW = 26
	svgThreadH = 17
	svgGap     = 4
	svgHead    = 17 // height of a line of text
	svgPad     = 6
	svgCharW   = 6.3 // of 11 px text, wide enough for any sans-serif
)

// palette are the owners' colours: light, so that black numbers are readable on them.
var palette = []string{"#8ecae6", "#ffb703", "#90be6d", "#f4978e", "#cdb4db", "#e9c46a", "#76c7c0", "#f8a5c2", "#b5c99a", "#a3b3f7", "#d4a373", "#c9cba3"}

// colour returns an owner's colour.
func colour(owner int) string { return palette[owner%len(palette)] }

// box is a rectangle with its contents. Contents are laid out before the boxes around them.
type box struct {
	x, y, w, h int
	fill, edge string
	dash       bool
	text       string
	small      bool // text centred, for a CPU's number
	kids       []*box
	title      string // shown by a browser under the pointer
}

// SVG draws hosts in the style of lstopo: packages, nodes with their memory, last-level caches, cores and threads,
// devices on their nodes, and the owners of a plan in their colours.
func (p *Picture) SVG(w io.Writer) error {
	const mostHosts = 16
	var hosts []*box
	for i, h := range p.Hosts {
		if i == mostHosts {
			break
		}
		var paint Paint
		if i < len(p.Paints) {
			paint = p.Paints[i]
		}
		hosts = append(hosts, hostBox(h, &paint))
	}
	notes := p.Notes
	for i, h := range p.Hosts {
		if line := h.spread(); line != "" && i < mostHosts {
			notes = append(notes[:len(notes):len(notes)], line)
		}
	}
	if len(p.Hosts) > mostHosts {
		notes = append(notes[:len(notes):len(notes)], fmt.Sprintf("%d more hosts are not drawn", len(p.Hosts)-mostHosts))
	}
	root := column("", hosts)
	legend := p.legend(max(root.w, 420), notes)
	all := &box{kids: []*box{root, legend}, w: max(root.w, legend.w) + 2*svgPad}
	top := svgPad
	if p.Title != "" {
		top += svgHead + 4
	}
	root.x, root.y = svgPad, top
	legend.x, legend.y = svgPad, top+root.h+svgPad
	all.h = legend.y + legend.h + svgPad

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11">`+"\n", all.w, all.h, all.w, all.h)
	b.WriteString(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/><line x1="0" y1="0" x2="0" y2="6" stroke="#888" stroke-width="2"/></pattern></defs>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", all.w, all.h)
	if p.Title != "" {
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", svgPad, svgPad+14, html.EscapeString(p.Title))
	}
	root.draw(&b, 0, 0)
	legend.draw(&b, 0, 0)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (b *box) draw(out *strings.Builder, x, y int) {
	x, y = x+b.x, y+b.y
	if b.fill != "" || b.edge != "" {
		fill, edge := b.fill, b.edge
		if fill == "" {
			fill = "none"
		}
		if edge == "" {
			edge = "none"
		}
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="%s"`, x, y, b.w, b.h, fill, edge)
		if b.dash {
			out.WriteString(` stroke-dasharray="3 2"`)
		}
		if b.title != "" {
			fmt.Fprintf(out, `><title>%s</title></rect>`+"\n", html.EscapeString(b.title))
		} else {
			out.WriteString("/>\n")
		}
	}
	switch {
	case b.text != "" && b.small:
		if b.fill == "url(#hatch)" {
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="11" fill="#fff"/>`+"\n", x+4, y+3, b.w-8)
		}
		fmt.Fprintf(out, `<text x="%d" y="%d" font-size="9" text-anchor="middle">%s</text>`+"\n", x+b.w/2, y+b.h/2+3, html.EscapeString(b.text))
	case b.text != "":
		fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", x+svgPad, y+13, html.EscapeString(b.text))
	}
	for _, k := range b.kids {
		k.draw(out, x, y)
	}
}

// textWidth returns an upper bound of a text's width, in pixels.
func textWidth(s string) int { return int(float64(len(s))*svgCharW) + 2*svgPad }

// column stacks boxes below a heading.
func column(text string, kids []*box) *box { return stack(text, kids, 1<<30, false) }

// flow arranges boxes in rows of at most width pixels, below a heading.
func flow(text string, kids []*box, width int) *box { return stack(text, kids, width, true) }

func stack(text string, kids []*box, width int, across bool) *box {
	b := &box{text: text, kids: kids, w: textWidth(text)}
	x, y, line := svgPad, svgPad, 0
	if text != "" {
		y = svgHead + 2
	}
	for _, k := range kids {
		if across && x > svgPad && x+k.w > width || !across && line > 0 {
			x, y, line = svgPad, y+line+svgGap, 0
		}
		k.x, k.y = x, y
		x += k.w + svgGap
		line = max(line, k.h)
		b.w = max(b.w, k.x+k.w+svgPad)
	}
	b.h = y + line + svgPad
	return b
}

// stretch makes boxes as wide as the widest.
func stretch(list []*box) []*box {
	w := 0
	for _, b := range list {
		w = max(w, b.w)
	}
	for _, b := range list {
		b.w = w
	}
	return list
}

// hostBox draws one host.
func hostBox(h *Host, p *Paint) *box {
	var packages []*box
	byPackage := map[int][]*box{}
	var order []int
	var bare []*box
	for i := range h.Nodes {
		n := &h.Nodes[i]
		nb := nodeBox(h, n, p)
		if len(n.CPUs) == 0 {
			bare = append(bare, nb)
			continue
		}
		pkg := h.CPU(n.CPUs[0]).Package
		if byPackage[pkg] == nil {
			order = append(order, pkg)
		}
		byPackage[pkg] = append(byPackage[pkg], nb)
	}
	sort.Ints(order)
	for _, pkg := range order {
		b := column(fmt.Sprintf("package %d", pkg), stretch(byPackage[pkg]))
		b.fill, b.edge = "#f2f2f2", "#999"
		packages = append(packages, b)
	}
	if len(bare) > 0 {
		b := column("memory only", stretch(bare))
		b.fill, b.edge, b.dash = "#f8f4ea", "#999", true
		packages = append(packages, b)
	}
	width := 0
	for _, b := range packages {
		width = max(width, b.w)
	}
	perLine := min(len(packages), 4, max(1, 2150/(width+svgGap)))
	if perLine == 3 && len(packages)%3 != 0 {
		perLine = 2
	}
	kids := packages
	var offline, nodeless []int
	for i := range h.CPUs {
		switch c := &h.CPUs[i]; {
		case h.NodeIndex(c.Node) >= 0:
		case c.Online:
			nodeless = append(nodeless, c.ID)
		default:
			offline = append(offline, c.ID)
		}
	}
	for _, s := range []struct {
		what string
		ids  []int
	}{{"offline CPUs ", offline}, {"CPUs on no node ", nodeless}} {
		if len(s.ids) == 0 {
			continue
		}
		text := clip(s.what + FormatList(s.ids))
		kids = append(kids, &box{text: text, w: textWidth(text), h: svgHead + 2, fill: "#eee", edge: "#777", dash: true})
	}
	if d := strayBox(h, p); d != nil {
		kids = append(kids, d)
	}
	name := h.Name
	if h.Model != "" {
		name += ": " + h.Model
	}
	b := flow(name, kids, perLine*(width+svgGap)+svgPad+1)
	b.edge = "#333"
	return b
}

// nodeBox draws a node: its memory, caches, cores, devices.
func nodeBox(h *Host, n *Node, p *Paint) *box {
	groups := map[int][]int{} // L3 → cores
	cores := map[int][]*CPU{}
	var l3s []int
	dies := map[int]int{}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if c.Node != n.ID {
			continue
		}
		core := c.Core
		if !c.Online {
			core = -1 - c.ID // drawn as a core of its own
		}
		if cores[core] == nil {
			if groups[c.L3] == nil {
				l3s = append(l3s, c.L3)
			}
			groups[c.L3] = append(groups[c.L3], core)
			dies[c.L3] = c.Die
		}
		cores[core] = append(cores[core], c)
	}
	sort.Ints(l3s)
	total := n.MemoryBytes
	text := fmt.Sprintf("node %d: %s", n.ID, words.Bytes(total))
	if total == 0 {
		text = fmt.Sprintf("node %d: no memory", n.ID)
	} else if n.GPU != "" {
		text += " of a GPU"
	}
	for _, pool := range n.Pools {
		if pool.Total > 0 {
			text += fmt.Sprintf(", %d x %s", pool.Total, words.Bytes(pool.PageBytes))
		}
	}
	var kids []*box
	for _, l3 := range l3s {
		var list []*box
		for _, c := range groups[l3] {
			list = append(list, coreBox(cores[c], p))
		}
		sort.SliceStable(list, func(i, j int) bool { return list[i].dash != list[j].dash && !list[i].dash })
		per := 8
		if len(list) <= 4 {
			per = 4
		} else if len(list) > 36 {
			per = 12
		}
		label := ""
		switch {
		case l3 >= 0:
			label = "L3"
			if s := h.l3Size(cores[groups[l3][0]][0].ID); s > 0 {
				label += " " + words.Bytes(s)
			}
			if h.dies() > 1 {
				label += fmt.Sprintf(", die %d", dies[l3])
			}
			if h.l3Wide(cores[groups[l3][0]][0].ID) {
				label += ", one with the package's other nodes"
			}
		case len(l3s) > 1:
			label = "offline"
		}
		w := 0
		for _, c := range list {
			w = max(w, c.w)
		}
		g := flow(label, list, per*(w+svgGap)+svgPad+1)
		g.fill, g.edge = "#fff", "#bbb"
		kids = append(kids, g)
	}
	inner := flow("", kids, 620)
	inner.x, inner.y = 0, svgHead+svgHead
	if len(kids) == 0 {
		inner.w, inner.h = 120, 0
	}
	b := &box{text: text, fill: "#e4eef5", edge: "#888", kids: []*box{inner}}
	devs := deviceBoxes(h, n.ID, p)
	b.w = max(inner.w, textWidth(text))
	b.h = inner.y + inner.h
	if len(devs) > 0 {
		d := flow("", devs, max(b.w, 300))
		d.y = b.h - svgPad
		b.kids = append(b.kids, d)
		b.w = max(b.w, d.w)
		b.h = d.y + d.h
	}
	b.kids = append(b.kids, memoryBar(n, p, b.w)...)
	if len(kids) == 0 && len(devs) == 0 {
		b.h += svgPad
	}
	return b
}

// memoryBar draws the node's memory with the owners' shares.
func memoryBar(n *Node, p *Paint, width int) []*box {
	if n.MemoryBytes == 0 {
		return nil
	}
	w := width - 2*svgPad
	out := []*box{{x: svgPad, y: svgHead + 2, w: w, h: 11, fill: "#fff", edge: "#888", title: words.Bytes(n.MemoryBytes)}}
	x := 0
	for _, s := range p.Memory[n.ID] {
		sw := min(int(float64(w)*float64(s.Bytes)/float64(n.MemoryBytes)+0.5), w-x)
		if sw > 0 {
			out = append(out, &box{x: svgPad + x, y: svgHead + 2, w: sw, h: 11, fill: colour(s.Owner), edge: "#666", title: words.Bytes(s.Bytes)})
			x += sw
		}
	}
	return out
}

// coreBox draws a core with its threads.
func coreBox(cpus []*CPU, p *Paint) *box {
	b := &box{fill: "#ddd", edge: "#777", h: svgThreadH + 4}
	for i, c := range cpus {
		t := &box{x: 2 + i*(svgThreadW+1), y: 2, w: svgThreadW, h: svgThreadH, small: true, text: fmt.Sprint(c.ID), fill: "#fff", edge: "#aaa"}
		m, marked := p.CPUs[c.ID]
		switch {
		case !c.Online:
			t.fill, t.dash = "#eee", true
			b.fill, b.dash = "#eee", true
			t.title = "offline"
		case marked && m.Kind == Used:
			t.fill, t.edge = colour(m.Owner), "#444"
		case marked && m.Kind == Idle:
			t.edge = colour(m.Owner)
			t.title = "left idle"
		case marked && m.Kind == Reserved:
			t.fill = "url(#hatch)"
			t.title = "reserved for the host"
		case marked && m.Kind == Held:
			t.fill = "#9a9a9a"
			t.title = "another VM's"
		case !c.Allowed:
			t.fill = "#c8c8c8"
			t.title = "not this job's"
		}
		if c.Isolated && c.Online {
			b.edge = "#c1121f"
		}
		b.kids = append(b.kids, t)
	}
	b.w = 4 + len(cpus)*(svgThreadW+1) - 1
	return b
}

// deviceBoxes draws the cards of a node (-1: of none).
func deviceBoxes(h *Host, node int, p *Paint) []*box {
	var out []*box
	for _, d := range h.shown() {
		if d.Node != node || d.IsVF() && h.Device(d.PF) != nil {
			continue
		}
		text := d.Address
		if names := append(append([]string(nil), d.RDMA...), d.Net...); len(names) > 0 {
			text += " " + strings.Join(names[:min(len(names), 2)], " ")
		}
		if len(d.VFs) > 0 {
			text += fmt.Sprintf(", %d VFs", len(d.VFs))
		}
		b := &box{text: text, fill: "#fdfdf0", edge: "#6a8", w: textWidth(text), h: svgHead + 2}
		for i, o := range p.Devices[d.Address] {
			if i < 16 {
				b.kids = append(b.kids, &box{x: b.w + 2 + i*12, y: 4, w: 10, h: 11, fill: colour(o), edge: "#444"})
			}
		}
		if n := min(len(p.Devices[d.Address]), 16); n > 0 {
			b.w += n*12 + 4
		}
		out = append(out, b)
	}
	return out
}

// strayBox draws the devices for which the firmware reports no node.
func strayBox(h *Host, p *Paint) *box {
	devs := deviceBoxes(h, -1, p)
	if len(devs) == 0 {
		return nil
	}
	b := flow("devices of no node", devs, 600)
	b.fill, b.edge, b.dash = "#fff", "#999", true
	return b
}

// spread returns a line with the distances between the nodes of a host, or "" if it has only one node.
func (h *Host) spread() string {
	low, high := 0, 0
	for i := range h.Nodes {
		for j, d := range h.Nodes[i].Distances {
			if i == j {
				continue
			}
			if low == 0 || d < low {
				low = d
			}
			high = max(high, d)
		}
	}
	switch {
	case high == 0:
		return ""
	case low == high:
		return fmt.Sprintf("%s: distance between nodes %d (10: the same)", h.Name, low)
	}
	return fmt.Sprintf("%s: distances between nodes %d to %d (10: the same)", h.Name, low, high)
}

// legend explains colours and hatching.
func (p *Picture) legend(width int, notes []string) *box {
	entry := func(b *box, text string) *box {
		b.w, b.h, b.y = svgThreadW, 13, 2
		return &box{kids: []*box{b, {x: svgThreadW, text: text}}, w: svgThreadW + textWidth(text), h: svgHead}
	}
	const most = 48
	var kids []*box
	for i, o := range p.Owners {
		if i == most {
			kids = append(kids, &box{text: fmt.Sprintf("and %d more", len(p.Owners)-most), w: 100, h: svgHead})
			break
		}
		kids = append(kids, entry(&box{fill: colour(i), edge: "#444"}, o))
	}
	kinds, offline, isolated, barred := map[MarkKind]bool{}, false, false, false
	for _, paint := range p.Paints {
		for _, m := range paint.CPUs {
			kinds[m.Kind] = true
		}
	}
	for _, h := range p.Hosts {
		for i := range h.CPUs {
			c := &h.CPUs[i]
			offline = offline || !c.Online && h.NodeIndex(c.Node) >= 0
			isolated = isolated || c.Isolated
			barred = barred || c.Online && !c.Allowed
		}
	}
	if kinds[Idle] {
		kids = append(kids, entry(&box{fill: "#fff", edge: colour(0)}, "sibling of a vCPU's CPU, left idle"))
	}
	if kinds[Reserved] {
		kids = append(kids, entry(&box{fill: "url(#hatch)", edge: "#aaa"}, "reserved for the host"))
	}
	if kinds[Held] {
		kids = append(kids, entry(&box{fill: "#9a9a9a", edge: "#444"}, "held by other VMs"))
	}
	if isolated {
		kids = append(kids, entry(&box{fill: "#ddd", edge: "#c1121f"}, "isolated core"))
	}
	if barred {
		kids = append(kids, entry(&box{fill: "#c8c8c8", edge: "#aaa"}, "not this job's"))
	}
	if offline {
		kids = append(kids, entry(&box{fill: "#eee", edge: "#777", dash: true}, "offline"))
	}
	memory, devices := false, false
	for _, paint := range p.Paints {
		memory = memory || len(paint.Memory) > 0
		devices = devices || len(paint.Devices) > 0
	}
	if memory {
		kids = append(kids, entry(&box{fill: "#fff", edge: "#888"}, "bar: a node's memory, coloured where a VM has it"))
	}
	if devices {
		kids = append(kids, entry(&box{fill: "#fdfdf0", edge: "#6a8"}, "card, with a square for each function that a VM has"))
	}
	for _, n := range notes {
		kids = append(kids, &box{text: n, w: max(width, textWidth(n)), h: svgHead})
	}
	if len(kids) == 0 {
		return &box{}
	}
	return flow("", kids, width)
}
