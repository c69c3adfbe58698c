package gate

import (
	"encoding/xml"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

func sample(c, v, size string, values ...float64) []record.Sample {
	var out []record.Sample
	for i, x := range values {
		out = append(out, record.Sample{Case: c, Variant: v, Point: map[string]string{"size": size}, Rep: i, Value: x, OK: true})
	}
	return append(out, record.Sample{Case: c, Variant: v, Point: map[string]string{"size": size}, Rep: -1, Value: 1e9, OK: true})
}

func run(samples ...[]record.Sample) Run {
	r := Run{Record: &record.Run{
		ID: "r", Variants: []record.Variant{{Label: "native"}, {Label: "VM", Emulated: true}},
		Cases: []record.Case{{Name: "lat", Metric: "latency", Unit: "us", Better: "down"}, {Name: "bw", Metric: "bandwidth", Unit: "MB/s", Better: "up"}},
	}}
	for _, s := range samples {
		r.Samples = append(r.Samples, s...)
	}
	return r
}

func TestCompare(t *testing.T) {
	before := run(
		sample("lat", "native", "8", 10, 10.1, 9.9, 10, 10),
		sample("lat", "native", "16", 10, 14, 8, 12, 9),
		sample("lat", "native", "32", 10, 10, 10, 10, 10),
		sample("lat", "VM", "8", 10, 10, 10, 10, 10),
		sample("bw", "native", "8", 100, 101, 99, 100, 100),
	)
	after := run(
		sample("lat", "native", "8", 12, 12.1, 11.9, 12, 12), // 20 % slower
		sample("lat", "native", "16", 11, 15, 9, 13, 8),      // 10 % slower, in the noise
		sample("lat", "VM", "8", 90, 90, 90, 90, 90),         // emulated: no verdict
		sample("bw", "native", "8", 120, 121, 119, 120, 120), // 20 % more
		sample("bw", "native", "16", 1, 1, 1),
	)
	r := Compare(before, after, 0.05)
	got := map[string]Verdict{}
	for _, row := range r.Rows {
		got[row.Case+" "+row.Variant+" "+row.Point] = row.Verdict
	}
	want := map[string]Verdict{
		"lat native size=8": Worse, "lat native size=16": Same, "lat native size=32": Missing,
		"lat VM size=8": Emulated, "bw native size=8": Better, "bw native size=16": New,
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s, want %s", k, got[k], v)
		}
	}
	if r.Worse != 2 || len(r.Rows) != len(want) {
		t.Errorf("%d worse of %d rows", r.Worse, len(r.Rows))
	}
	if c := Compare(before, before, 0.05); c.Worse != 0 {
		t.Errorf("a run is worse than itself: %+v", c)
	}
	var b strings.Builder
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	var doc junitSuites
	if err := xml.Unmarshal([]byte(b.String()), &doc); err != nil || len(doc.Suites) != 2 || doc.Suites[0].Failures+doc.Suites[1].Failures != 2 {
		t.Errorf("%v\n%s", err, b.String())
	}
}
