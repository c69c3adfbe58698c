package check

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/topology"
)

// rows are all rows, group by group.
var rows = join(firmwareRows, cmdlineRows, powerRows, noiseRows, memoryRows, iommuRows, rdmaRows, roceRows, kvmRows, qemuRows, limitRows, slurmRows, guestRows, esxiRows)

func join(lists ...[]Row) []Row {
	var all []Row
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var (
	onHosts   = []Profile{VMHost, SlurmNode}
	onVMHosts = []Profile{VMHost}
	anywhere  = []Profile{VMHost, Guest, SlurmNode}
	withRDMA  = []Profile{VMHost, Guest, SlurmNode, RoCE}
	inGuests  = []Profile{Guest}
)

func found(s Status, format string, args ...any) finding {
	return finding{status: s, found: fmt.Sprintf(format, args...)}
}

func (f finding) fixedBy(format string, args ...any) finding {
	f.fix = fmt.Sprintf(format, args...)
	return f
}

// rank orders statuses: worse ones are higher.
func rank(s Status) int {
	switch s {
	case NotApplicable:
		return 0
	case OK:
		return 1
	case Unknown:
		return 2
	case Warn:
		return 3
	}
	return 4
}

// worst returns the finding of several items: the worst status, and the items with it in one line. Without items it
// returns none.
func worst(items []Item, none finding) finding {
	if len(items) == 0 {
		return none
	}
	f := finding{status: NotApplicable, items: items}
	for _, i := range items {
		if rank(i.Status) > rank(f.status) {
			f.status = i.Status
		}
	}
	const most = 3 // items in the line; all are in the list
	var told []string
	n := 0
	for _, i := range items {
		if i.Status != f.status {
			continue
		}
		if n++; n <= most {
			told = append(told, i.Name+": "+i.Found)
		}
	}
	f.found = strings.Join(told, "; ")
	if n > most {
		f.found += fmt.Sprintf("; and %d more", n-most)
	}
	return f
}

// byValue groups numbered objects (CPUs, nodes) by their values, as items; good returns a value's status.
func byValue(what string, values map[int]string, good func(string) Status) []Item {
	groups := map[string][]int{}
	for id, v := range values {
		groups[v] = append(groups[v], id)
	}
	var items []Item
	var first []int
	for v, ids := range groups {
		sort.Ints(ids)
		items = append(items, Item{what + " " + topology.FormatList(ids), good(v), v})
		first = append(first, ids[0])
	}
	sort.Sort(&byFirst{first, items})
	return items
}

type byFirst struct {
	first []int
	items []Item
}

func (b *byFirst) Len() int           { return len(b.first) }
func (b *byFirst) Less(i, j int) bool { return b.first[i] < b.first[j] }
func (b *byFirst) Swap(i, j int) {
	b.first[i], b.first[j] = b.first[j], b.first[i]
	b.items[i], b.items[j] = b.items[j], b.items[i]
}

// absent returns the finding for a missing file: this kernel does not have it, or the captured tree does not.
func (f *facts) absent() finding {
	if f.live {
		return found(NotApplicable, "this kernel has none")
	}
	return found(Unknown, "not in the tree")
}

// wants returns the look of a row that reads one file: ok for the values listed, else bad.
func wants(file string, bad Status, good ...string) func(*facts) finding {
	return func(f *facts) finding {
		v := chosen(f.line(file))
		if v == "" {
			return f.absent()
		}
		if slices.Contains(good, v) {
			return found(OK, "%s", v)
		}
		return found(bad, "%s", v)
	}
}

// writes returns the fix of a row that writes one file.
func writes(file, value string) func(*facts) []Write {
	return func(f *facts) []Write {
		if !f.has(file) {
			return nil
		}
		return []Write{{File: file, Value: value}}
	}
}

// cpus returns the numbers of the online CPUs.
func (f *facts) cpus() []int {
	ids, err := topology.ParseList(f.line("/sys/devices/system/cpu/online"), topology.MaxCPUs)
	if err != nil {
		return nil
	}
	return ids
}

const cpuDir = "/sys/devices/system/cpu/"

// cpuValues reads a file of every online CPU; %d in name is the CPU's number.
func (f *facts) cpuValues(name string) map[int]string {
	values := map[int]string{}
	for _, id := range f.cpus() {
		if v := f.line(cpuDir + fmt.Sprintf(name, id)); v != "" {
			values[id] = v
		}
	}
	return values
}
