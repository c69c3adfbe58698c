package explain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// element is an element of an XML text, with its position in that text. Names have no prefix.
type element struct {
	name  string
	attrs map[string]string
	kids  []*element
	text  string // without surrounding white space
	// Offsets in the text: of the start tag, of the element's content, of its end tag, and of the end of that.
	start, open, shut, end int
}

// parse parses an XML text that has been checked by paths.
func parse(text string) (*element, error) {
	dec := xml.NewDecoder(strings.NewReader(text))
	var root *element
	var stack []*element
	for {
		from := int(dec.InputOffset())
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, oneLine(err)
		}
		to := int(dec.InputOffset())
		switch t := tok.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, attrs: map[string]string{}, start: from, open: to}
			for _, a := range t.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					e.attrs[a.Name.Local] = a.Value
				}
			}
			if len(stack) > 0 {
				up := stack[len(stack)-1]
				up.kids = append(up.kids, e)
			} else {
				root = e
			}
			stack = append(stack, e)
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].text += string(t)
			}
		case xml.EndElement:
			e := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			e.text = strings.TrimSpace(e.text)
			e.shut, e.end = from, to
		}
	}
	if root == nil {
		return nil, errors.New("no XML")
	}
	return root, nil
}

// named returns the children with a name, in their order.
func (e *element) named(name string) []*element {
	var list []*element
	for _, k := range e.kids {
		if k.name == name {
			list = append(list, k)
		}
	}
	return list
}

// names returns those of the children, each once.
func (e *element) names() []string {
	var list []string
	for _, k := range e.kids {
		if !slices.Contains(list, k.name) {
			list = append(list, k.name)
		}
	}
	return list
}

// equal reports whether two elements have the same content.
func (e *element) equal(o *element) bool {
	if e.name != o.name || e.text != o.text || len(e.attrs) != len(o.attrs) || len(e.kids) != len(o.kids) {
		return false
	}
	for k, v := range e.attrs {
		if w, ok := o.attrs[k]; !ok || v != w {
			return false
		}
	}
	for i := range e.kids {
		if !e.kids[i].equal(o.kids[i]) {
			return false
		}
	}
	return true
}

// akin reports whether a changed element still describes the same object.
func (e *element) akin(o *element) bool {
	for _, k := range []string{"type", "index", "model", "bus", "id", "cellid", "vcpu", "iothread", "name", "device"} {
		if e.attrs[k] != o.attrs[k] {
			return false
		}
	}
	return true
}

// edit replaces bytes of a text.
type edit struct {
	from, to int
	by       string
}

// rewriter applies to a text the changes between two marshalled forms of it.
type rewriter struct {
	text  string
	after string // the new form
	edits []edit
}

// rewrite returns text with the differences between before and after, two forms of the domain as written by this
// program. All other bytes stay: comments, order, and elements that this program does not know. It fails if such an
// unknown part is within a changed one.
func rewrite(text, before, after string) (string, error) {
	if before == after {
		return text, nil
	}
	var tree [3]*element
	for i, s := range []string{text, before, after} {
		var err error
		if tree[i], err = parse(s); err != nil {
			return "", err
		}
	}
	w := &rewriter{text: text, after: after}
	if err := w.element(tree[0], tree[1], tree[2], 0); err != nil {
		return "", err
	}
	sort.SliceStable(w.edits, func(i, j int) bool {
		a, b := w.edits[i], w.edits[j]
		return a.from < b.from || a.from == b.from && a.to < b.to
	})
	var b strings.Builder
	at := 0
	for _, e := range w.edits {
		if e.from < at {
			return "", errors.New("changes that overlap: change the lines by hand")
		}
		b.WriteString(text[at:e.from])
		b.WriteString(e.by)
		at = e.to
	}
	b.WriteString(text[at:])
	return b.String(), nil
}

// element changes o, whose form is a, to the form b.
func (w *rewriter) element(o, a, b *element, depth int) error {
	tag := w.tag(o, a, b)
	empty := o.shut == o.open && o.end == o.open // <x/>
	if a.text != b.text {
		if len(o.kids) > 0 {
			return fmt.Errorf("%s: text between elements: change the lines by hand", o.name)
		}
		if empty {
			w.edits = append(w.edits, edit{o.start, o.end, opened(tag) + escape(b.text) + "</" + w.rawName(o) + ">"})
			return nil
		}
		w.edits = append(w.edits, edit{o.open, o.shut, escape(b.text)})
	}
	inserts := map[int]string{} // by place
	names := b.names()
	for _, n := range a.names() {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	at := o.open // position of the next new element
	for _, name := range names {
		is, was, shall := o.named(name), a.named(name), b.named(name)
		switch {
		case slices.EqualFunc(was, shall, (*element).equal):
			if len(is) > 0 {
				at = is[len(is)-1].end
			}
			continue
		case len(is) == 0:
			for _, k := range shall {
				inserts[at] += w.render(o, k, depth)
			}
			continue
		case len(is) != len(was):
			return fmt.Errorf("%s in %s: some are not known to this program: change the lines by hand", name, o.name)
		}
		var err error
		if at, err = w.list(o, is, was, shall, at, inserts, depth); err != nil {
			return err
		}
	}
	if empty && len(inserts) > 0 {
		w.edits = append(w.edits, edit{o.start, o.end, opened(tag) + inserts[o.open] + w.lineBreak(o, depth) + "</" + w.rawName(o) + ">"})
		return nil
	}
	if tag != w.text[o.start:o.open] {
		w.edits = append(w.edits, edit{o.start, o.open, tag})
	}
	for p, s := range inserts {
		if len(o.kids) == 0 && strings.TrimSpace(w.text[o.open:o.shut]) == "" && !strings.Contains(w.text[o.open:o.shut], "\n") {
			s += w.lineBreak(o, depth)
		}
		w.edits = append(w.edits, edit{p, p, s})
	}
	return nil
}

// list changes the children with one name. It returns the position of the next new element.
func (w *rewriter) list(up *element, is, was, shall []*element, at int, inserts map[int]string, depth int) (int, error) {
	partner, err := align(was, shall) // for each of shall: its index in was, or -1
	if err != nil {
		return 0, fmt.Errorf("%s: %w", up.name, err)
	}
	next := 0
	drop := func(to int) error {
		for ; next < to; next++ {
			if more := beyond(is[next], was[next]); more != "" {
				return fmt.Errorf("%s has what this program does not know (%s): change the lines by hand", is[next].name, printable(more))
			}
			space, _ := w.before(is[next].start)
			w.edits = append(w.edits, edit{is[next].start - len(space), is[next].end, ""})
		}
		return nil
	}
	for k, p := range partner {
		if p < 0 {
			kept := len(is) // the next one that stays
			if i := slices.IndexFunc(partner[k:], func(q int) bool { return q >= 0 }); i >= 0 {
				kept = partner[k+i]
			}
			if next < kept { // replaces one that is removed
				at = is[next].end
			}
			inserts[at] += w.render(up, shall[k], depth)
			continue
		}
		if err := drop(p); err != nil {
			return 0, err
		}
		if !was[p].equal(shall[k]) {
			if err := w.element(is[p], was[p], shall[k], depth+1); err != nil {
				return 0, err
			}
		}
		at, next = is[p].end, p+1
	}
	if err := drop(len(is)); err != nil {
		return 0, err
	}
	return max(at, is[len(is)-1].end), nil
}

// align finds for each element of shall the corresponding one of was: equal ones first, in their order, then akin
// ones between them. It fails if that would last too long.
func align(was, shall []*element) ([]int, error) {
	const most = 1 << 22 // comparisons
	head := 0
	for head < len(was) && head < len(shall) && was[head].equal(shall[head]) {
		head++
	}
	tail := 0
	for tail < len(was)-head && tail < len(shall)-head && was[len(was)-1-tail].equal(shall[len(shall)-1-tail]) {
		tail++
	}
	if (len(was)-head-tail)*(len(shall)-head-tail) > most {
		return nil, fmt.Errorf("%d elements become %d: too many to compare", len(was), len(shall))
	}
	var partner []int
	for i := range head {
		partner = append(partner, i)
	}
	for _, p := range alignDifferent(was[head:len(was)-tail], shall[head:len(shall)-tail]) {
		if p >= 0 {
			p += head
		}
		partner = append(partner, p)
	}
	for i := range tail {
		partner = append(partner, len(was)-tail+i)
	}
	return partner, nil
}

// alignDifferent does so for elements whose first and last differ.
func alignDifferent(was, shall []*element) []int {
	n, m := len(was), len(shall)
	long := make([][]int32, n+1)
	for i := range long {
		long[i] = make([]int32, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if was[i].equal(shall[j]) {
				long[i][j] = long[i+1][j+1] + 1
			} else {
				long[i][j] = max(long[i+1][j], long[i][j+1])
			}
		}
	}
	partner := make([]int, m)
	for j := range partner {
		partner[j] = -1
	}
	gap := func(i, to, j, end int) {
		for ; j < end; j++ {
			for k := i; k < to; k++ {
				if was[k].akin(shall[j]) {
					partner[j], i = k, k+1
					break
				}
			}
		}
	}
	i, j, fromI, fromJ := 0, 0, 0, 0
	for i < n && j < m {
		switch {
		case was[i].equal(shall[j]):
			gap(fromI, i, fromJ, j)
			partner[j] = i
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case long[i+1][j] >= long[i][j+1]:
			i++
		default:
			j++
		}
	}
	gap(fromI, n, fromJ, m)
	return partner
}

// beyond returns the name of an element or attribute of o that its form does not have; "": none.
func beyond(o, form *element) string {
	for k := range o.attrs {
		if _, ok := form.attrs[k]; !ok {
			return o.name + "@" + k
		}
	}
	for _, name := range o.names() {
		x, y := o.named(name), form.named(name)
		if len(x) > len(y) {
			return o.name + "/" + name
		}
		for i := range x {
			if s := beyond(x[i], y[i]); s != "" {
				return s
			}
		}
	}
	return ""
}

// rawName returns an element's name in the text, with its prefix.
func (w *rewriter) rawName(o *element) string {
	s := w.text[o.start+1 : o.open]
	return s[:strings.IndexAny(s, " \t\r\n/>")]
}

// tag returns the start tag of o with the attributes that differ between a and b.
func (w *rewriter) tag(o, a, b *element) string {
	raw := w.text[o.start:o.open]
	set := func(name, value string, gone bool) {
		at := len(w.rawName(o)) + 1
		for {
			for at < len(raw) && strings.IndexByte(" \t\r\n", raw[at]) >= 0 {
				at++
			}
			if raw[at] == '/' || raw[at] == '>' {
				break
			}
			eq := at + strings.IndexByte(raw[at:], '=')
			key := strings.TrimSpace(raw[at:eq])
			quote := eq + 1 + strings.IndexAny(raw[eq+1:], `"'`)
			end := quote + 1 + strings.IndexByte(raw[quote+1:], raw[quote])
			if _, local, ok := strings.Cut(key, ":"); key == name || ok && local == name && !strings.HasPrefix(key, "xmlns:") {
				if gone {
					raw = strings.TrimRight(raw[:at], " \t\r\n") + raw[end+1:]
				} else {
					raw = raw[:quote+1] + escape(value) + raw[end:]
				}
				return
			}
			at = end + 1
		}
		if !gone {
			head := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(raw, ">"), "/"), " \t\r\n")
			raw = head + " " + name + `="` + escape(value) + `"` + raw[len(head):]
		}
	}
	var keys []string
	for k := range a.attrs {
		keys = append(keys, k)
	}
	for k := range b.attrs {
		if _, ok := a.attrs[k]; !ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		v, ok := b.attrs[k]
		if old, had := a.attrs[k]; !ok || !had || old != v {
			set(k, v, !ok)
		}
	}
	return raw
}

// opened returns the start tag of an element with content.
func opened(tag string) string {
	if strings.HasSuffix(tag, "/>") {
		return strings.TrimRight(strings.TrimSuffix(tag, "/>"), " \t\r\n") + ">"
	}
	return tag
}

// before returns the line break and the white space that precede a position in the text; false: other text precedes
// it in its line.
func (w *rewriter) before(at int) (string, bool) {
	k := at
	for k > 0 && (w.text[k-1] == ' ' || w.text[k-1] == '\t') {
		k--
	}
	if k == 0 || w.text[k-1] != '\n' {
		return "", false
	}
	if k > 1 && w.text[k-2] == '\r' {
		k--
	}
	return w.text[k-1 : at], true
}

// lineBreak returns the white space before the end tag of an element with lines of its own.
func (w *rewriter) lineBreak(o *element, depth int) string {
	if space, ok := w.before(o.start); ok {
		return space
	}
	return "\n" + strings.Repeat("  ", depth)
}

// render formats a new child of up, from the new form, as separate lines. A child is indented more than its parent.
func (w *rewriter) render(up, k *element, depth int) string {
	in := w.lineBreak(up, depth) + "  "
	for _, kid := range up.kids {
		if space, ok := w.before(kid.start); ok {
			in = space
			break
		}
	}
	lines := strings.Split(w.after[k.start:k.end], "\n")
	line := strings.LastIndexByte(w.after[:k.start], '\n') + 1
	own := len(w.after[line:k.start])
	for i, s := range lines {
		if i > 0 && len(s) >= own && strings.TrimSpace(s[:own]) == "" {
			lines[i] = s[own:]
		}
	}
	return in + strings.Join(lines, in)
}

// escape escapes text or the value of an attribute.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}
