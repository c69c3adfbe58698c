package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// layers are the directories of fabric/ from the lowest to the highest. A file includes only headers of its own
// directory and of lower ones, so that calls never go up. object/ also includes the state.h of higher ones: its objects
// contain those types.
var layers = []string{"base", "region", "ring", "object", "remote", "proto", "ofi"}

// stateHeader is the name of a header that declares types and no functions; a line that declares a function begins with
// its type.
const stateHeader = "state.h"

var function = regexp.MustCompile(`(?m)^\w.*\(`)

var include = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// includes checks the headers that the files of each layer below top include, and that every layer exists.
func includes(top string) ([]string, error) {
	var faults []string
	for at, layer := range layers {
		files, err := filepath.Glob(filepath.Join(top, "fabric", layer, "*.[ch]"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			faults = append(faults, fmt.Sprintf("fabric/%s: there are no sources; tools/lint/layers.go names this directory", layer))
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(top, f)
			if err != nil {
				return nil, err
			}
			if filepath.Base(f) == stateHeader && function.Match(src) {
				faults = append(faults, fmt.Sprintf("%s: has a function: lower directories include this file, so that it declares types only", rel))
			}
			for _, m := range include.FindAllStringSubmatch(string(src), -1) {
				folder, _, in := strings.Cut(m[1], "/")
				switch n := slices.Index(layers, folder); {
				case !in && m[1] == "tune.h":
				case !in || n < 0:
					faults = append(faults, fmt.Sprintf("%s: includes %q: write DIR/FILE with a directory of %s", rel, m[1], strings.Join(layers, ", ")))
				case n > at && layer == "object" && m[1] == folder+"/"+stateHeader:
				case n > at:
					faults = append(faults, fmt.Sprintf("%s: includes %q of the higher directory %s: move what it needs to %s or below, or call it through a table that a higher directory sets",
						rel, m[1], folder, layer))
				}
			}
		}
	}
	return faults, nil
}
