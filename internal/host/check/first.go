package check

import "strings"

// causes are rows that fail because another does: the one to fix is that.
var causes = map[string]string{
	"kvm.works":     "firmware.virtualization",
	"cmdline.iommu": "firmware.iommu",
	"iommu.vfio":    "firmware.iommu",
}

// CauseOf returns the failed row that a failed row follows from, "" where it stands for itself.
func (r *Report) CauseOf(row *Result) string {
	cause := causes[row.ID]
	if cause == "" || row.Status != Fail {
		return ""
	}
	for i := range r.Rows {
		if r.Rows[i].ID == cause && r.Rows[i].Status == Fail {
			return cause
		}
	}
	return ""
}

// weighty are the rows whose warnings cost most, in their order; other warnings come after them.
var weighty = []string{"memory.hugepages", "power.governor", "power.c-states", "memory.numa-balancing", "memory.thp",
	"kvm.ple", "cmdline.isolation", "limits.memlock", "limits.shm"}

// First returns the rows to fix first, at most n: failures before warnings, and none that follows from
// another.
func (r *Report) First(n int) []*Result {
	var list []*Result
	take := func(want func(*Result) bool) {
		for i := range r.Rows {
			if row := &r.Rows[i]; len(list) < n && want(row) {
				list = append(list, row)
			}
		}
	}
	take(func(row *Result) bool { return row.Status == Fail && r.CauseOf(row) == "" })
	for _, id := range weighty {
		take(func(row *Result) bool { return row.Status == Warn && row.ID == id })
	}
	rest := "," + strings.Join(weighty, ",") + ","
	take(func(row *Result) bool { return row.Status == Warn && !strings.Contains(rest, ","+row.ID+",") })
	return list
}
