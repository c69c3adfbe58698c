package check

import "strings"

// causes maps rows to the row whose failure makes them fail, which is the one to fix.
var causes = map[string]string{
	"kvm.works":     "firmware.virtualization",
	"cmdline.iommu": "firmware.iommu",
	"iommu.vfio":    "firmware.iommu",
}

// CauseOf returns the failed row that caused the failure of row, or "" if row is itself the cause.
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

// weighty are the rows whose warnings cost the most, in their order; other warnings follow.
var weighty = []string{"memory.hugepages", "power.governor", "power.c-states", "memory.numa-balancing", "memory.thp",
	"kvm.ple", "cmdline.isolation", "limits.memlock", "limits.shm"}

// First returns at most n rows to fix first: failures before warnings, and no consequences of other failures.
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
