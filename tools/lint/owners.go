package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// owners are the members of struct ivs_peer and struct ivs_ep that belong to one layer, by their names. Only files of that
// layer write what is in them; files of higher layers may read it.
var owners = map[string]string{"ring": "ring", "home": "ring"}

// assigned matches an assignment to something in such a member, or its increment.
var assigned = regexp.MustCompile(`(?:\+\+|--)\w+(?:(?:->|\.)\w+)*(?:->|\.)(ring|home)\.\w+|(?:->|\.)(ring|home)\.\w+(?:\.\w+|\[[^\]]*\])*\s*(?:[-+|&^*/%]?=[^=]|<<=|>>=|\+\+|--)`)

// ownersOf returns a finding for each place in fabric/ and ucx/ below top that writes what another layer owns.
func ownersOf(top string) ([]string, error) {
	var faults []string
	for _, pattern := range []string{"fabric/*/*.[ch]", "ucx/*.[ch]"} {
		files, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			rel, err := filepath.Rel(top, f)
			if err != nil {
				return nil, err
			}
			src, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			layer := filepath.Base(filepath.Dir(rel))
			if !slices.Contains(layers, layer) {
				layer = "ucx"
			}
			for n, line := range strings.Split(string(src), "\n") {
				m := assigned.FindStringSubmatch(line)
				if m == nil {
					continue
				}
				if owner := owners[m[1]+m[2]]; owner != layer {
					faults = append(faults, fmt.Sprintf("%s:%d: writes %q, which belongs to fabric/%s: call a function of that directory", rel, n+1, strings.TrimSpace(m[0]), owner))
				}
			}
		}
	}
	return faults, nil
}
