package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/bench/record"
)

// alternating is a run with two native variants and an emulated VM. b is twice as fast as a at 14 of 24 sizes, as fast at 9, and at
// the last now faster, now slower. In each fourth repetition of b the cores are elsewhere, where all takes a tenth.
func alternating() (*record.Run, []record.Sample) {
	run := &record.Run{Version: 1, ID: "x", Ended: time.Now(), Host: record.Host{Cores: 48},
		Variants: []record.Variant{{Label: "a", Kind: "native", Cores: 48}, {Label: "b", Kind: "native", Cores: 48}, {Label: "VM", Kind: "vm", Cores: 2, Emulated: true}},
		Cases:    []record.Case{{Name: "osu/latency", Better: "down", Kind: "size", X: "size"}}}
	var samples []record.Sample
	for size := range 24 {
		for rep := range 14 {
			for v, value := range []float64{10, 10, 500} {
				s := record.Sample{Case: "osu/latency", Variant: run.Variants[v].Label, Point: map[string]string{"size": fmt.Sprint(1 << size)}, Rep: rep, OK: true, PingPong: 0.2}
				switch {
				case v == 1 && (size < 14 || size == 23 && rep%2 == 0):
					value /= 2
				case v == 1 && size == 23:
					value *= 2
				}
				if s.Value = value * (1 + 0.001*float64(rep)); v == 1 && rep%4 == 3 {
					s.Value, s.PingPong = s.Value/10, 0.05
				}
				samples = append(samples, s)
			}
		}
	}
	return run, samples
}

// The overall result comes first, in the text, in the page and as data. Emulated VMs are not in it.
func TestOverall(t *testing.T) {
	const want = "b against a: faster at 14 of 24 sizes, equal at 9, undecided at 1"
	r := reportOf(t, writeRun(t, first(alternating()), second(alternating())), "")
	var text strings.Builder
	if err := r.Text(&text, false); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(text.String(), "\n"); lines[1] != want {
		t.Errorf("the text begins with %q", lines[:2])
	}
	if page := htmlOf(t, r); !strings.Contains(page, "<h1><span>"+want+"</span>") {
		t.Error("the page does not begin with it")
	}
	data, err := json.Marshal(r.View())
	if err != nil {
		t.Fatal(err)
	}
	if begin := `{"runs":[{"id":"x","overall":["` + want + `"]`; !strings.HasPrefix(string(data), begin) {
		t.Errorf("the data begin with %.100s", data)
	}
	for _, part := range []string{`"faster":14,"slower":0,"equal":9,"undecided":1`, `"word":"faster"`, `"paired":2`} {
		if !strings.Contains(string(data), part) {
			t.Errorf("%s is not in the data", part)
		}
	}
}

func first(run *record.Run, _ []record.Sample) *record.Run          { return run }
func second(_ *record.Run, samples []record.Sample) []record.Sample { return samples }

// With too few repetitions nothing is decided, which is said with the reason.
func TestOverallFew(t *testing.T) {
	v := verdictOf(t, []float64{100, 100, 100, 100, 100}, []float64{50, 50, 50, 50, 50}, Tolerance{})
	if got := tally(v.Words, "point"); got != "undecided" {
		t.Errorf("five repetitions are %s", got)
	}
	run, samples := alternating()
	var few []record.Sample
	for _, s := range samples {
		if s.Rep < 5 {
			few = append(few, s)
		}
	}
	var text strings.Builder
	if err := reportOf(t, writeRun(t, run, few), "").Text(&text, false); err != nil {
		t.Fatal(err)
	}
	if want := "undecided at all 24 sizes, with fewer than 7 repetitions"; !strings.Contains(text.String(), want) {
		t.Errorf("%q is not in the text", want)
	}
}

// A run whose VMs were emulated says so in its headline, whatever else it has.
func TestEmulatedHeadline(t *testing.T) {
	run, samples := alternating()
	run.Variants = append(run.Variants[:1:1], run.Variants[2])
	r := reportOf(t, writeRun(t, run, samples), "")
	if page := htmlOf(t, r); !strings.Contains(page, "<h1>Not comparable: VMs were emulated (no KVM)</h1>") {
		t.Error("the headline does not say that VMs were emulated")
	}
}
