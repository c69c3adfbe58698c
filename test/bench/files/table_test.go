package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A goal is met at its bound, missed above it, and left out where nothing was measured.
func TestGoals(t *testing.T) {
	places := []*place{{name: "9p"}, {name: "virtiofs"}, {name: "tmpfs"}, {name: "host"}}
	x := newTable(places)
	for i, name := range []string{importsCold, importsWarm, importsCold8} {
		for j, p := range places {
			x.add(name, p, float64(10+i+j))
		}
	}
	for range 2 {
		x.add(importsWarm8, places[0], 100)
		x.add(importsWarm8, places[1], 13)
		x.add(importsWarm8, places[2], 10)
	}
	var out bytes.Buffer
	if err := x.print(&out, 5); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"warm imports, virtiofs / tmpfs":                        "met",    // 12/13
		"warm imports on 8 ranks, virtiofs / tmpfs":             "met",    // 1.3
		"cold imports, virtiofs / 9p":                           "MISSED", // 11/10
		"8 ranks at once / one after the other, warm, 9p":       "MISSED", // 100/88
		"8 ranks at once / one after the other, warm, virtiofs": "met",
	} {
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.HasPrefix(line, what+" ") && !slices.Contains(strings.Fields(line), want) {
				t.Errorf("%q: not %s", line, want)
			}
		}
		if !strings.Contains(out.String(), what) {
			t.Errorf("%s is missing in\n%s", what, out.String())
		}
	}
	// Beside a goal of cold imports stands what a tmpfs, warm, has of 9p's time.
	if !strings.Contains(out.String(), "MISSED  1.30\n") { // 13/10
		t.Errorf("no time of a tmpfs in\n%s", out.String())
	}
	// Of parts that were left out nothing is said.
	part := newTable(places)
	part.add(importsCold, places[0], 2)
	part.add(importsWarm, places[0], 1)
	out.Reset()
	if err := part.print(&out, 1); err != nil || strings.Contains(out.String(), "met") || strings.Contains(out.String(), "MISSED") {
		t.Errorf("%v, a part alone:\n%s", err, out.String())
	}
	empty := newTable(places)
	for _, g := range empty.goals() {
		if g.ratio <= g.bar {
			t.Errorf("%s: met by nothing", g.what)
		}
	}
}
