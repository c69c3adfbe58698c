package main

import (
	"os"
	"testing"
)

// Every constant that is varied is found in fabric/tune.h.
func TestTunedConstants(t *testing.T) {
	text, err := os.ReadFile("../../../fabric/tune.h")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2] != ""
	}
	for _, g := range tuned {
		for _, name := range g.names {
			if p, ok := parameters[name]; ok {
				name = p
			}
			if !found[name] {
				t.Errorf("fabric/tune.h has no line of %s", name)
			}
		}
	}
}
