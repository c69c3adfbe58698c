package extract

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"nearmetal/internal/bench/suite"
)

var table = suite.Output{Metric: "latency", Match: `^\s*(?P<size>\d+)\s+(?P<value>\S+)`}

func TestText(t *testing.T) {
	got, err := Values([]byte("# OSU\n# Size Latency\n8   1.50\n16  2,000.5D0\n"), []suite.Output{table}, Context{})
	want := []Value{{Point: map[string]string{"size": "8"}, Value: 1.5}, {Point: map[string]string{"size": "16"}, Value: 2000.5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestJSON(t *testing.T) {
	o := suite.Output{Metric: "bw", JSON: "a.results[]", Value: "mean", Point: map[string]string{"size": "bytes"}, Scale: 0.5}
	got, err := Values([]byte(`warning: x
{"a":{"results":[{"bytes":8,"mean":3},{"bytes":16,"mean":"4"}]}}`), []suite.Output{o}, Context{})
	want := []Value{{Point: map[string]string{"size": "8"}, Value: 1.5}, {Point: map[string]string{"size": "16"}, Value: 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestWallAndPeak(t *testing.T) {
	list := []suite.Output{{Metric: "time", Wall: true}, {Metric: "peak", Match: `(?P<value>\d+) GF`, Peak: true, Last: true}}
	got, err := Values([]byte("1 GF\n20 GF\n"), list, Context{Seconds: 2.5, Peak: 40})
	want := []Value{{Value: 2.5}, {Output: 1, Value: 50}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

// TestMayLack: perftest prints -nan as the deviation of long times. The other values still count.
func TestMayLack(t *testing.T) {
	lacks := suite.Output{Metric: "deviation", Match: `(?P<value>\d+) dev`, MayLack: true}
	got, err := Values([]byte("8 1.5\n-nan dev"), []suite.Output{table, lacks}, Context{})
	want := []Value{{Point: map[string]string{"size": "8"}, Value: 1.5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct {
		text string
		o    suite.Output
		want string
	}{
		{"no table\nhere", table, "the output has no latency"},
		{"8 nan", table, `has "nan" as its latency`},
		{"8 x", table, `has "x" as its latency`},
		{"", suite.Output{Metric: "m", JSON: ".", Value: "v"}, "has no JSON document"},
		{`{"v":1`, suite.Output{Metric: "m", JSON: ".", Value: "v"}, "is not a whole JSON document"},
		{`{"v":1}`, suite.Output{Metric: "m", JSON: "a[]", Value: "v"}, "has no a in its JSON document"},
		{`{"a":1}`, suite.Output{Metric: "m", JSON: "a[]", Value: "v"}, "has no list at a[]"},
		{`{"a":[1]}`, suite.Output{Metric: "m", JSON: "a[]", Value: "v"}, "something else than objects"},
		{"1 GF", suite.Output{Metric: "p", Match: "(?P<value>1) GF", Peak: true}, "peak of this processor is not known"},
	} {
		_, err := Values([]byte(c.text), []suite.Output{c.o}, Context{})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || len(e.Lines()) < 2 {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	one := 1.0
	for _, c := range []struct {
		text  string
		check suite.Check
		want  string
	}{
		{"PASSED", suite.Check{Match: "^PASSED"}, ""},
		{"FAILED", suite.Check{Match: "^PASSED", Says: "HPL failed"}, "HPL failed"},
		{"a FAILED b", suite.Check{Absent: "FAILED"}, `the output has "FAILED"`},
		{"r 0.5\nr 2", suite.Check{Match: `r (?P<value>\S+)`, Max: &one}, "2 is above 1"},
		{"r 0.5", suite.Check{Match: `r (?P<value>\S+)`, Min: &one}, "0.5 is below 1"},
		{"r x", suite.Check{Match: `r (?P<value>\S+)`, Min: &one}, `"x" is not a number`},
	} {
		err := Check([]byte(c.text), []suite.Check{c.check})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add("8 1.5\n", `{"results":[{"bytes":1,"mean":2}]}`, "results[]")
	f.Fuzz(func(t *testing.T, text, doc, path string) {
		Values([]byte(text), []suite.Output{table}, Context{})
		Values([]byte(doc), []suite.Output{{Metric: "m", JSON: path, Value: "mean", Point: map[string]string{"s": "bytes"}}}, Context{})
	})
}
