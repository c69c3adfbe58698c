package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// layersUCX are the parts of ucx/ from the lowest to the highest: the directory abi, and files by their name. A file
// includes headers of lower parts, and of fabric/, which abi does not include.
var layersUCX = []string{"abi", "base", "message", "memory", "object", "peer", "receive", "ep", "iface", "atomic", "window", "register", "preload"}

// includesUCX checks the headers that the files of ucx/ below top include, and that each file is one of layersUCX.
func includesUCX(top string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(top, "ucx", "*.[ch]"))
	if err != nil {
		return nil, err
	}
	abi, err := filepath.Glob(filepath.Join(top, "ucx", "abi", "*.[ch]"))
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, f := range append(abi, files...) {
		rel, err := filepath.Rel(top, f)
		if err != nil {
			return nil, err
		}
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(f)
		at := slices.Index(layersUCX, strings.TrimSuffix(name, filepath.Ext(name)))
		if slices.Contains(abi, f) {
			at = 0
		}
		if at < 0 {
			faults = append(faults, fmt.Sprintf("%s: it is none of the parts in tools/lint/layersucx.go: put it among them", rel))
			continue
		}
		for _, m := range include.FindAllStringSubmatch(string(src), -1) {
			folder, _, in := strings.Cut(m[1], "/")
			n := slices.Index(layersUCX, strings.TrimSuffix(m[1], ".h"))
			switch {
			case in && folder == "abi", in && at > 0 && slices.Contains(layers, folder):
			case at == 0 && !in && slices.Contains(abi, filepath.Join(filepath.Dir(f), m[1])):
			case !in && at > 0 && n > 0 && n <= at:
			case !in && at > 0 && n > at:
				faults = append(faults, fmt.Sprintf("%s: includes %q, which is higher: move what it needs to %s or below", rel, m[1], layersUCX[at]))
			default:
				faults = append(faults, fmt.Sprintf("%s: includes %q, which is no lower part of ucx/ and no header of fabric/", rel, m[1]))
			}
		}
	}
	return faults, nil
}
