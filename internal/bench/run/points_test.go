package run

import (
	"testing"

	"nearmetal/internal/bench/suite"
)

// In a job there is a rank for each core of all its nodes, and where ranks have threads one for
// as many cores as those.
func TestJobRanks(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	picked, err := suite.Select(list, []string{"namd/stmv"})
	if err != nil {
		t.Fatal(err)
	}
	e := &picked[0].Experiments[0]
	v := &Variant{Step: &Step{Nodes: 4}}
	v.Cores = 44
	for threads, ranks := range map[string]string{"1": "176", "22": "8", "44": "4"} {
		q := &Request{Variants: []Variant{*v}, Set: map[string][]string{"threads": {threads}}}
		points, err := q.points(e, 44, true)
		if err != nil || len(points) != 1 {
			t.Fatal(points, err)
		}
		values, err := q.values(e, points[0], v)
		if err != nil || values["ranks"] != ranks || values["threads"] != threads || values["nodes"] != "4" {
			t.Errorf("%s threads: %v, %v", threads, values, err)
		}
	}
}
