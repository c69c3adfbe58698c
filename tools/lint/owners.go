package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// owners are the members of struct ivs_peer and struct ivs_ep that belong to one layer, by their names. Only files of
// that layer write to them. Files of higher layers may read them; files of lower ones do not name them.
var owners = map[string]string{"ring": "ring", "home": "ring", "core": "remote", "proto": "proto"}

const owned = `(ring|home|core|proto)\.\w+`

// assigned matches an assignment to a part of such a member, or its increment.
var assigned = regexp.MustCompile(`(?:\+\+|--)\w+(?:(?:->|\.)\w+)*(?:->|\.)` + owned + `|(?:->|\.)` + owned + `(?:\.\w+|\[[^\]]*\])*\s*(?:[-+|&^*/%]?=[^=]|<<=|>>=|\+\+|--)`)

// named matches any use of such a member.
var named = regexp.MustCompile(`(?:->|\.)` + owned)

// ownersOf returns a finding for each place in fabric/ and ucx/ below top that writes to a member of another layer, or
// names a member of a higher one.
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
				if m := assigned.FindStringSubmatch(line); m != nil && owners[m[1]+m[2]] != layer {
					faults = append(faults, fmt.Sprintf("%s:%d: writes %q, which belongs to fabric/%s: call a function of that directory",
						rel, n+1, strings.TrimSpace(m[0]), owners[m[1]+m[2]]))
					continue
				}
				at := slices.Index(layers, layer)
				if m := named.FindStringSubmatch(line); m != nil && at >= 0 && at < slices.Index(layers, owners[m[1]]) {
					faults = append(faults, fmt.Sprintf("%s:%d: names %q, which belongs to the higher directory fabric/%s: call it through a table that a higher directory sets",
						rel, n+1, m[0], owners[m[1]]))
				}
			}
		}
	}
	return faults, nil
}
