package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/suite"
	"nearmetal/internal/report"
	"nearmetal/internal/report/paper"
)

// --paper runs what repeats a figure on as many hosts as there are, and nothing else.
func TestRepeating(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paper     string
		hosts     []int
		with, not string
	}{
		{"000", []int{2}, "perftest/send_lat", "lammps/eam"},
		{"000", []int{8}, "lammps/eam", "osu/latency"},
		{"002", []int{1, 2}, "openfoam/motorbike", "npb/cg"},
		{"003", []int{1}, "osu/put_bw", "stream/triad"},
		{"004", []int{1}, "stream/triad", "npb/cg"},
		{"004", []int{8}, "npb/cg", "npb/cg-omp"},
	} {
		p, err := paper.Open(c.paper)
		if err != nil {
			t.Fatal(err)
		}
		picked, err := report.Repeating(list, p, c.hosts)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range picked {
			for _, e := range s.Experiments {
				names = append(names, s.Name+"/"+e.Name)
			}
		}
		if !slices.Contains(names, c.with) || slices.Contains(names, c.not) {
			t.Errorf("paper %s on %v hosts: %v", c.paper, c.hosts, names)
		}
	}
	p, err := paper.Open("002")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := report.Repeating(list, p, []int{3}); err == nil || !strings.Contains(err.Error(), "3 hosts") {
		t.Errorf("on three hosts: %v", err)
	}
	if p, err = paper.Open("000"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(report.Ways(list, p)(paper.Key{Paper: "000", Item: "fig 3"})); got != "[nearmetal bench run osu/latency --paper 000 --nodes 2]" {
		t.Error(got)
	}
}
