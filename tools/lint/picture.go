package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pictureFile shows the imports between the rooms of internal/: made by `go run ./tools/lint -draw`, compared by lint.
const pictureFile = "docs/architecture.svg"

// Sizes in the picture, in px. All positions are whole numbers, so that the picture is the same bytes on every machine.
const (
	roomFor    = 1180 // width within which the boxes are placed
	margin     = 24
	between    = 26 // between the boxes of a row
	rowGap     = 58 // for the arrows between two rows
	lineHeight = 15 // of the small names in a box
	perLine    = 24 // characters of small names per line
)

// inks are the colours of the arrows: one for each room in which they begin, so that the eye can follow one.
var inks = []string{"#2c5fa8", "#b7791f", "#2f7d3b", "#a23b5e", "#5b4ba3", "#1f7f86", "#6b7280"}

// box is a room in the picture, or a place where an arrow passes a row (name "").
type box struct {
	name     string
	small    []string // lines with the names of the packages below it
	x, w, h  int      // center, width and height
	up, down []*box   // boxes that arrows connect it with, in the adjacent rows
}

// picture compares the picture with the imports.
func picture(top string) ([]string, error) {
	want, err := draw(top)
	if err != nil {
		return nil, err
	}
	if got, err := os.ReadFile(filepath.Join(top, pictureFile)); err != nil || !bytes.Equal(got, want) {
		return []string{pictureFile + " does not show the imports as they are: run go run ./tools/lint -draw"}, nil
	}
	return nil, nil
}

// draw returns the picture of the imports below top, as SVG.
func draw(top string) ([]byte, error) {
	packages, err := importsBelow(top)
	if err != nil {
		return nil, err
	}
	rooms, below := roomsOf(packages)
	rank, err := ranks(rooms)
	if err != nil {
		return nil, err
	}
	rows, arrows := lay(rooms, below, rank)
	order(rows)
	place(rows)
	var base []string
	for _, name := range sorted(rooms) {
		if rank[name] == 0 {
			base = append(base, name)
		}
	}
	return paint(rows, arrows, base), nil
}

// sorted returns the keys of m in order.
func sorted(m map[string][]string) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// roomsOf returns the imports of each room from other rooms, and the names of the packages below it. A room is a
// directory of internal/ with everything below it, or cmd.
func roomsOf(packages map[string][]string) (rooms, below map[string][]string) {
	rooms, below = map[string][]string{}, map[string][]string{}
	for _, name := range sorted(packages) {
		room, rest, ok := strings.Cut(name, "/")
		if ok {
			below[room] = append(below[room], rest)
		}
		list := rooms[room]
		for _, other := range packages[name] {
			if to, _, _ := strings.Cut(other, "/"); to != room {
				list = append(list, to)
			}
		}
		slices.Sort(list)
		rooms[room] = slices.Compact(list)
	}
	return rooms, below
}

// ranks returns the row of each room, counted from the bottom: 0 for those that import no other, which the picture
// shows without arrows; otherwise one above the highest that it imports. It fails if rooms import each other in a
// cycle.
func ranks(rooms map[string][]string) (map[string]int, error) {
	rank := map[string]int{}
	var find func(name string, path []string) error
	find = func(name string, path []string) error {
		if slices.Contains(path, name) {
			return fmt.Errorf("rooms of internal/ import each other in a circle: %s", strings.Join(append(path, name), ", "))
		}
		if _, ok := rank[name]; ok {
			return nil
		}
		n := 0
		for _, to := range rooms[name] {
			if err := find(to, append(slices.Clip(path), name)); err != nil {
				return err
			}
			n = max(n, rank[to]+1)
		}
		rank[name] = n
		return nil
	}
	for _, name := range sorted(rooms) {
		if err := find(name, nil); err != nil {
			return nil, err
		}
	}
	return rank, nil
}

// lay returns the rows of the picture from the top, and each arrow as the boxes that it passes. An arrow that follows
// from two others is left out.
func lay(rooms, below map[string][]string, rank map[string]int) (rows, arrows [][]*box) {
	reach := map[string]map[string]bool{}
	byRank := sorted(rooms)
	slices.SortStableFunc(byRank, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	highest := rank[byRank[len(byRank)-1]]
	rows = make([][]*box, highest)
	boxes := map[string]*box{}
	for _, name := range byRank {
		reach[name] = map[string]bool{}
		for _, to := range rooms[name] {
			reach[name][to] = true
			maps.Copy(reach[name], reach[to])
		}
		if rank[name] > 0 {
			boxes[name] = newBox(name, below[name])
			rows[highest-rank[name]] = append(rows[highest-rank[name]], boxes[name])
		}
	}
	for _, name := range byRank {
		for _, to := range rooms[name] {
			if boxes[to] == nil || slices.ContainsFunc(rooms[name], func(by string) bool { return reach[by][to] }) {
				continue
			}
			arrow := []*box{boxes[name]}
			for r := rank[name] - 1; r > rank[to]; r-- {
				pass := &box{w: 6}
				rows[highest-r] = append(rows[highest-r], pass)
				arrow = append(arrow, pass)
			}
			arrow = append(arrow, boxes[to])
			for i := range arrow[1:] {
				arrow[i].down = append(arrow[i].down, arrow[i+1])
				arrow[i+1].up = append(arrow[i+1].up, arrow[i])
			}
			arrows = append(arrows, arrow)
		}
	}
	return rows, arrows
}

// newBox returns a room's box, large enough for its names.
func newBox(name string, below []string) *box {
	b := &box{name: name}
	line := ""
	for _, s := range below {
		if line != "" && len(line)+2+len(s) > perLine {
			b.small, line = append(b.small, line+","), ""
		}
		line = strings.TrimPrefix(line+", "+s, ", ")
	}
	if line != "" {
		b.small = append(b.small, line)
	}
	b.w, b.h = 10*len(name)+26, 32+lineHeight*len(b.small)
	for _, s := range b.small {
		b.w = max(b.w, 7*len(s)+22)
	}
	return b
}

// order sorts each row to reduce crossings of arrows: it repeatedly sorts by the mean position of the boxes that each
// one is connected with, alternately from above and from below. It keeps the order with the fewest crossings.
func order(rows [][]*box) {
	best, fewest := [][]*box(nil), -1
	for pass := range 40 {
		for i := range rows {
			row, near, joined := rows[i], i-1, func(b *box) []*box { return b.up }
			if pass%2 == 1 {
				i = len(rows) - 1 - i
				row, near, joined = rows[i], i+1, func(b *box) []*box { return b.down }
			}
			if near < 0 || near >= len(rows) {
				continue
			}
			key := map[*box]int{}
			for at, b := range row {
				key[b] = at * 1000
				if list := joined(b); len(list) > 0 {
					sum := 0
					for _, o := range list {
						sum += slices.Index(rows[near], o)
					}
					key[b] = sum * 1000 / len(list)
				}
			}
			slices.SortStableFunc(row, func(a, b *box) int { return cmp.Compare(key[a], key[b]) })
		}
		if n := crossings(rows); fewest < 0 || n < fewest {
			fewest, best = n, nil
			for _, row := range rows {
				best = append(best, slices.Clone(row))
			}
		}
	}
	copy(rows, best)
}

// crossings returns how many pairs of arrows cross between rows.
func crossings(rows [][]*box) int {
	n := 0
	for i, row := range rows[:len(rows)-1] {
		var ends []int // in the row below, by where they begin
		for _, b := range row {
			from := len(ends)
			for _, to := range b.down {
				at := slices.Index(rows[i+1], to)
				for _, e := range ends[:from] {
					if e > at {
						n++
					}
				}
				ends = append(ends, at)
			}
		}
	}
	return n
}

// place sets the positions of the boxes, from left to right: near the center of those that each is connected with, and
// without overlap.
func place(rows [][]*box) {
	gap := func(a, b *box) int { return (a.w+b.w)/2 + between }
	apart := func(row []*box) {
		for i := 1; i < len(row); i++ {
			row[i].x = max(row[i].x, row[i-1].x+gap(row[i-1], row[i]))
		}
		last := len(row) - 1
		row[last].x = min(row[last].x, roomFor-margin-row[last].w/2)
		for i := last - 1; i >= 0; i-- {
			row[i].x = min(row[i].x, row[i+1].x-gap(row[i], row[i+1]))
		}
		if row[0].x < margin+row[0].w/2 {
			row[0].x = margin + row[0].w/2
			for i := 1; i < len(row); i++ {
				row[i].x = max(row[i].x, row[i-1].x+gap(row[i-1], row[i]))
			}
		}
	}
	for _, row := range rows {
		for i, b := range row {
			b.x = roomFor * (2*i + 1) / (2 * len(row))
		}
		apart(row)
	}
	for range 60 {
		for _, row := range rows {
			for _, b := range row {
				sum := 2 * b.x
				for _, o := range b.up {
					sum += o.x
				}
				for _, o := range b.down {
					sum += o.x
				}
				b.x = sum / (2 + len(b.up) + len(b.down))
			}
			apart(row)
		}
	}
	left := rows[0][0].x
	for _, row := range rows {
		left = min(left, row[0].x-row[0].w/2)
	}
	for _, row := range rows {
		for _, b := range row {
			b.x += margin - left
		}
	}
}

// paint writes the picture: the rows, the arrows behind them, and at the bottom the rooms that any room may import.
func paint(rows, arrows [][]*box, base []string) []byte {
	top, bottom := map[*box]int{}, map[*box]int{} // of each box's row
	y, width := 72, 0
	for _, row := range rows {
		most := 0
		for _, b := range row {
			most = max(most, b.h)
		}
		for _, b := range row {
			top[b], bottom[b] = y, y+most
			width = max(width, b.x+b.w/2+margin)
		}
		y += most + rowGap
	}
	end := y + 42
	var w bytes.Buffer
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="DejaVu Sans, Verdana, sans-serif" font-size="15">`+"\n", width, end+margin)
	fmt.Fprintf(&w, "<title>The rooms of internal/, and what each imports</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, end+margin)
	fmt.Fprintf(&w, `<text x="%d" y="30" font-size="13" fill="#44546a">An arrow leads to what a room imports. One that follows from others is left out.</text>`+"\n", margin)
	ink := map[string]string{}
	for _, a := range arrows {
		name := a[0].name
		if ink[name] == "" {
			ink[name] = inks[len(ink)%len(inks)]
		}
		x, y := a[0].x, bottom[a[0]]
		fmt.Fprintf(&w, `<path fill="none" stroke="%s" stroke-width="1.5" d="M%d %d V%d`, ink[name], x, top[a[0]]+a[0].h, y)
		for i, b := range a[1:] {
			to := top[b]
			if i+2 == len(a) {
				to -= 7 // room for the arrow's head
			}
			fmt.Fprintf(&w, " C%d %d %d %d %d %d", x, (y+to)/2, b.x, (y+to)/2, b.x, to)
			x, y = b.x, bottom[b]
			if i+2 < len(a) {
				fmt.Fprintf(&w, " V%d", y)
			}
		}
		to := top[a[len(a)-1]]
		fmt.Fprintf(&w, "\"/>\n<path fill=\"%s\" d=\"M%d %d l-4 -8 h8 z\"/>\n", ink[name], x, to)
	}
	for _, row := range rows {
		for _, b := range row {
			if b.name == "" {
				continue
			}
			fmt.Fprintf(&w, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#e8f0fb" stroke="#2c5fa8"/>`+"\n", b.x-b.w/2, top[b], b.w, b.h)
			fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="middle" font-weight="600" fill="#111111">%s</text>`+"\n", b.x, top[b]+21, b.name)
			for i, s := range b.small {
				fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="middle" font-size="11" fill="#333333">%s</text>`+"\n", b.x, top[b]+39+i*lineHeight, s)
			}
		}
	}
	fmt.Fprintf(&w, `<rect x="%d" y="%d" width="%d" height="62" rx="6" fill="#fdf0d5" stroke="#b7791f"/>`+"\n", margin, end-62, width-2*margin)
	fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="middle" font-weight="600" fill="#111111">%s</text>`+"\n", width/2, end-37, strings.Join(base, ", "))
	fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="middle" font-size="12" fill="#333333">import no other room; any may import them</text>`+"\n</svg>\n", width/2, end-15)
	return w.Bytes()
}
