package record

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	run := &Run{Version: 1, ID: "x", Variants: []Variant{{Label: "native.2", Kind: "native"}}, Cases: []Case{{Name: "osu/latency"}}}
	if err := SaveRun(dir, run); err != nil {
		t.Fatal(err)
	}
	want := []Sample{
		{Case: "osu/latency", Variant: "native.2", Point: map[string]string{"size": "8"}, Value: 1.5, OK: true},
		{Case: "osu/latency", Variant: "native.2", Rep: 1, Error: "killed"},
	}
	lines, err := Lines(want)
	if err != nil {
		t.Fatal(err)
	}
	// The remains of a crash: damage in the middle, and half a line at the end.
	text := string(lines) + "\x00\x00\n{\"case\":\"\"}\n" + string(lines[:30])
	if err := os.WriteFile(filepath.Join(dir, SamplesFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, samples, notes, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "x" || !reflect.DeepEqual(samples, want) {
		t.Errorf("read %+v, %+v", got, samples)
	}
	if len(notes) != 3 || !strings.Contains(notes[2], "samples.jsonl:5: the file was cut short") {
		t.Errorf("notes: %q", notes)
	}
}

func TestBadRuns(t *testing.T) {
	for text, want := range map[string]string{
		"":              "line 1 is not JSON",
		"{\n\n]":        "line 3 is not JSON",
		"[]":            "is not a record of a run",
		`{"version":9}`: "has version 9 of the format",
		`{"version":1,"variants":[{"label":"a"},{"label":"a"}]}`: "variant 1 has no label of its own",
		`{"version":1,"cases":[{}]}`:                             "case 0 has no name of its own",
	} {
		if _, err := ParseRun([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := LoadRun(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a directory of a benchmark run") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes+10)
	samples, notes, err := ReadSamples("s", strings.NewReader(long+"\n"+`{"case":"a","variant":"b"}`+"\n"))
	if err != nil || len(samples) != 1 || len(notes) != 1 {
		t.Errorf("%v %q %v", samples, notes, err)
	}
}

func FuzzReadSamples(f *testing.F) {
	f.Add("{\"case\":\"a\",\"variant\":\"b\",\"value\":1,\"ok\":true}\n{\"ca")
	f.Add("\n\n[1]\n")
	f.Fuzz(func(t *testing.T, text string) {
		samples, _, err := ReadSamples("s", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := Lines(samples)
		if err != nil {
			t.Fatal(err)
		}
		again, notes, err := ReadSamples("s", strings.NewReader(string(lines)))
		if err != nil || len(notes) > 0 || len(again) != len(samples) {
			t.Fatalf("read %d, wrote and read %d: %v %v", len(samples), len(again), notes, err)
		}
	})
}

func FuzzParseRun(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"x","variants":[{"label":"a"}],"cases":[{"name":"b"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) { ParseRun(text) })
}

// TestRealRun reads a run of `nearmetal bench run osu/latency`, natively and in two emulated VMs.
func TestRealRun(t *testing.T) {
	run, samples, notes, err := Load("testdata/latency")
	if err != nil || len(notes) > 0 || len(run.Variants) != 2 || len(samples) < 60 {
		t.Fatalf("%d samples, notes %q, %v", len(samples), notes, err)
	}
	for _, s := range samples {
		if s.Case != run.Cases[0].Name || !s.OK || s.Point["size"] == "" {
			t.Errorf("%+v", s)
		}
	}
}
