// Package vhpc reads the cluster files of VMware's vHPC toolkit (0.1 to 1.0.3), and converts them into nearmetal's
// cluster files.
//
// The form is INI. Sections _VMS_, _SVS_ and _DVS_ have a row for each VM or switch; the other sections are macros. A
// row is a name, a colon, and words: a macro's name, or key:value. A range {1:4} in a VM's name makes four VMs. In
// host, datastore, guest_hostname and ip, {a:b} assigns the values to the VMs cyclically, {{a:b}} in runs of the same
// value.
package vhpc

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a file: its bytes, the VMs that its ranges make, and the unknown keys that are listed.
const (
	fileMost    = 1 << 20
	vmsMost     = 1024
	unknownMost = 100
)

// VM is a VM of a file, its ranges unfolded.
type VM struct {
	Name string
	Line int               // of its row
	Keys map[string]string // by their names
}

// Unknown is a key that none of the toolkit's versions has.
type Unknown struct {
	Key  string
	Line int
}

// File is the content of a file.
type File struct {
	VMs      []VM
	Switches []Switch
	Unknown  []Unknown // each once
}

// Switch is a row of _SVS_ or _DVS_.
type Switch struct {
	Kind, Name string // svs or dvs
	Line       int
	Keys       map[string]string
}

// row is a line of a section, with its continuation lines.
type row struct {
	name, text string
	line       int
}

// vmKeys are the keys of a VM, as documented for the toolkit 0.1 to 1.0.3.
var vmKeys = words(`template cpu memory datacenter vm_folder cluster host datastore resource_pool linked port_group is_dhcp ip netmask
	gateway domain dns guest_hostname device mmio_size latency cpu_reservation memory_reservation cpu_shares memory_shares
	cores_per_socket guest_username guest_password script sequence barrier sriov_port_group sriov_dvs_name pf
	allow_guest_mtu_change pvrdma_port_group dvs_name vgpu secure_boot power instant adapter_number svs_name`)

// appended are the keys that a row may have several times: their values are a list.
var appended = words("script pf sriov_port_group sriov_dvs_name")

var switchKeys = words("name port_group host pnic datacenter mtu")

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// Read reads a file; name is used in errors, which have the line number.
func Read(name string, r io.Reader) (*File, error) {
	sections, order, err := parse(name, r)
	if err != nil {
		return nil, err
	}
	f := &File{}
	for _, s := range order {
		kind := strings.ToLower(strings.Trim(s, "_"))
		for _, x := range sections[s] {
			switch s {
			case "_VMS_":
				list, err := f.readVM(x, sections)
				if err != nil {
					return nil, fmt.Errorf("%s:%d: %w", name, x.line, err)
				}
				if f.VMs = append(f.VMs, list...); len(f.VMs) > vmsMost {
					return nil, fmt.Errorf("%s:%d: more than %d VMs", name, x.line, vmsMost)
				}
			case "_SVS_", "_DVS_":
				keys, err := f.keysOf(x, sections, switchKeys)
				if err != nil {
					return nil, fmt.Errorf("%s:%d: %w", name, x.line, err)
				}
				f.Switches = append(f.Switches, Switch{kind, x.name, x.line, keys})
			}
		}
	}
	seen := map[string]int{}
	for _, v := range f.VMs {
		if l := seen[v.Name]; l > 0 {
			return nil, fmt.Errorf("%s:%d: VM %.60q is on line %d already", name, v.Line, v.Name, l)
		}
		seen[v.Name] = v.Line
	}
	return f, nil
}

// parse splits a file into its sections.
func parse(name string, r io.Reader) (map[string][]row, []string, error) {
	sections := map[string][]row{}
	var order []string
	at, total := "", 0
	sc := bufio.NewScanner(io.LimitReader(r, fileMost+1))
	sc.Buffer(nil, fileMost+2)
	for n := 1; sc.Scan(); n++ {
		raw := sc.Text()
		if total += len(raw) + 1; total > fileMost {
			return nil, nil, fmt.Errorf("%s: more than %d bytes", name, fileMost)
		}
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			end := strings.IndexByte(line, ']')
			if end < 2 {
				return nil, nil, fmt.Errorf("%s:%d: not a section: [NAME]", name, n)
			}
			at = line[1:end]
			if _, twice := sections[at]; twice {
				return nil, nil, fmt.Errorf("%s:%d: section %.60q is there twice", name, n, at)
			}
			sections[at] = nil
			order = append(order, at)
		case at == "":
			return nil, nil, fmt.Errorf("%s:%d: there is no section yet: [BASE]", name, n)
		case (raw[0] == ' ' || raw[0] == '\t') && len(sections[at]) > 0:
			last := &sections[at][len(sections[at])-1]
			last.text += " " + line
		default:
			key, text, ok := cut(line)
			if !ok {
				return nil, nil, fmt.Errorf("%s:%d: not NAME: VALUE", name, n)
			}
			sections[at] = append(sections[at], row{key, text, n})
		}
	}
	return sections, order, sc.Err()
}

// cut splits a row at the first colon or equals sign that is not within a range.
func cut(line string) (key, text string, ok bool) {
	depth := 0
	for i, c := range line {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case (c == ':' || c == '=') && depth == 0:
			return strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:]), i > 0
		}
	}
	return "", "", false
}

var (
	scatter = regexp.MustCompile(`\{([0-9]{1,6}):([0-9]{1,6})\}`)
	bunch   = regexp.MustCompile(`\{\{([0-9]{1,6}):([0-9]{1,6})\}\}`)
)

// keysOf resolves the words of a row: macros, and key:value. A later word overrides an earlier one, except for keys
// that make lists. Unknown keys are omitted, and listed.
func (f *File) keysOf(at row, sections map[string][]row, known map[string]bool) (map[string]string, error) {
	keys := map[string]string{}
	put := func(key, value string, line int) {
		key = strings.ToLower(key)
		switch {
		case !known[key]:
			f.unknown(key, line)
		case value == "":
		case appended[key] && keys[key] != "":
			keys[key] += " " + value
		default:
			keys[key] = value
		}
	}
	for _, w := range fields(at.text) {
		if rows, macro := sections[w]; macro {
			for _, x := range rows {
				put(x.name, x.text, x.line)
			}
			continue
		}
		key, value, ok := cut(w)
		if !ok {
			return nil, fmt.Errorf("%.60q is neither a section nor KEY:VALUE", w)
		}
		put(key, value, at.line)
	}
	return keys, nil
}

// unknown lists a key, once.
func (f *File) unknown(key string, line int) {
	if len(f.Unknown) < unknownMost && !slices.ContainsFunc(f.Unknown, func(u Unknown) bool { return u.Key == key }) {
		f.Unknown = append(f.Unknown, Unknown{key, line})
	}
}

// fields splits a row into words: a list in brackets is one, and so is a key followed by a space and its value.
func fields(text string) []string {
	var list []string
	var b strings.Builder
	depth := 0
	flush := func() {
		if b.Len() > 0 {
			list = append(list, b.String())
			b.Reset()
		}
	}
	for _, c := range text {
		switch {
		case c == '[':
			depth++
			b.WriteRune(c)
		case c == ']':
			depth--
			b.WriteRune(c)
		case (c == ' ' || c == '\t') && depth <= 0:
			if !strings.HasSuffix(b.String(), ":") {
				flush()
			}
		default:
			b.WriteRune(c)
		}
	}
	flush()
	return list
}

// readVM makes the VMs of a row.
func (f *File) readVM(x row, sections map[string][]row) ([]VM, error) {
	keys, err := f.keysOf(x, sections, vmKeys)
	if err != nil {
		return nil, err
	}
	names, _, err := unfold(x.name)
	if err != nil {
		return nil, err
	}
	list := make([]VM, len(names))
	for i, n := range names {
		list[i] = VM{Name: n, Line: x.line, Keys: map[string]string{}}
	}
	for key, value := range keys {
		values, runs := []string{value}, false
		switch key {
		case "host", "datastore", "guest_hostname", "ip":
			if values, runs, err = unfold(value); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		if len(values) > len(list) || runs && len(list)%len(values) != 0 {
			return nil, fmt.Errorf("%s: %d values for %d VMs", key, len(values), len(list))
		}
		for i := range list {
			k := i % len(values)
			if runs {
				k = i / (len(list) / len(values))
			}
			list[i].Keys[key] = values[k]
		}
	}
	return list, nil
}

// unfold replaces a range by its numbers; runs reports that it was {{a:b}}.
func unfold(text string) (list []string, runs bool, err error) {
	m, whole := bunch.FindStringSubmatch(text), ""
	if runs = m != nil; !runs {
		m = scatter.FindStringSubmatch(text)
	}
	if m == nil {
		return []string{text}, false, nil
	}
	whole = m[0]
	from, _ := strconv.Atoi(m[1])
	to, _ := strconv.Atoi(m[2])
	if to < from || to-from >= vmsMost {
		return nil, false, fmt.Errorf("range %s is empty, or of more than %d", whole, vmsMost)
	}
	for i := from; i <= to; i++ {
		list = append(list, strings.Replace(text, whole, strconv.Itoa(i), 1))
	}
	return list, runs, nil
}
