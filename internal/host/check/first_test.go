package check

import (
	"strings"
	"testing"
)

func TestFirst(t *testing.T) {
	row := func(id string, s Status) Result {
		return Result{ID: id, Status: s, Found: "as it is", Fix: "change it"}
	}
	r := &Report{Rows: []Result{
		row("firmware.virtualization", Fail), row("firmware.x2apic", OK), row("cmdline.iommu", Fail), row("cmdline.slow", Warn),
		row("memory.hugepages", Warn), row("iommu.groups", NotApplicable), row("kvm.works", Fail), row("qemu.version", Unknown),
	}}
	ids := func(n int) string {
		var list []string
		for _, x := range r.First(n) {
			list = append(list, x.ID)
		}
		return strings.Join(list, " ")
	}
	// kvm.works follows from the firmware; cmdline.iommu is its own cause if the firmware's IOMMU is not in the
	// report.
	if got, want := ids(9), "firmware.virtualization cmdline.iommu memory.hugepages cmdline.slow"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := ids(3); strings.Contains(got, "cmdline.slow") || strings.Count(got, " ") != 2 {
		t.Errorf("three: %s", got)
	}
	text := Text{Columns: 80, Problems: true}.Report(r)
	if strings.Contains(text, "firmware.x2apic") || strings.Contains(text, "qemu.version") || !strings.Contains(text, "kvm.works: as it is\n          follows from firmware.virtualization\n") {
		t.Errorf("problems only:\n%s", text)
	}
	r.Rows = r.Rows[1:2]
	if text := (Text{Columns: 80}).Report(r); strings.Contains(text, "fix first") {
		t.Errorf("nothing to fix:\n%s", text)
	}
}
