package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// levelsAfter is the sentence of docs/architecture.md that precedes the block of its levels of packages, from the
// highest to the lowest: one level per line, names separated by commas.
const levelsAfter = "A package imports packages of lower lines alone"

// module is the prefix of the paths of packages of nearmetal.
const module = "nearmetal/internal/"

// packages compares the imports of all Go packages below internal/ and cmd/ with the levels of docs/architecture.md.
// Each package is on one line of them. Tests may import any package.
func packages(top string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(top, "docs/architecture.md"))
	if err != nil {
		return nil, err
	}
	level, faults := levels(string(page))
	imports, err := importsBelow(top)
	if err != nil {
		return nil, err
	}
	for name := range level {
		if _, ok := imports[name]; !ok {
			faults = append(faults, fmt.Sprintf("docs/architecture.md: there is no package %s", name))
		}
	}
	for name, list := range imports {
		at, ok := level[name]
		if !ok {
			faults = append(faults, fmt.Sprintf("docs/architecture.md: the package %s is on none of its lines", name))
			continue
		}
		for _, other := range list {
			if below, ok := level[other]; ok && below <= at {
				faults = append(faults, fmt.Sprintf("%s imports %s, which docs/architecture.md has no lower", name, other))
			}
		}
	}
	slices.Sort(faults)
	return faults, nil
}

// levels returns the line of each package, counted from the highest.
func levels(page string) (map[string]int, []string) {
	_, rest, ok := strings.Cut(page, levelsAfter)
	_, rest, open := strings.Cut(rest, "```\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !open || !closed {
		return nil, []string{fmt.Sprintf("docs/architecture.md: there is no block after %q", levelsAfter)}
	}
	level, faults := map[string]int{}, []string(nil)
	for at, line := range strings.Split(strings.TrimSpace(block), "\n") {
		for _, name := range strings.Split(line, ",") {
			name = strings.TrimSpace(name)
			if _, twice := level[name]; twice {
				faults = append(faults, fmt.Sprintf("docs/architecture.md: the package %s is there twice", name))
			}
			level[name] = at
		}
	}
	return level, faults
}

// importsBelow returns the imports among nearmetal's packages, by names without module; the programs are "cmd".
func importsBelow(top string) (map[string][]string, error) {
	imports := map[string][]string{}
	for _, dir := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			rel, err := filepath.Rel(filepath.Join(top, dir), filepath.Dir(path))
			if err != nil {
				return err
			}
			name := filepath.ToSlash(rel)
			if dir == "cmd" {
				name = "cmd"
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			list := imports[name]
			for _, spec := range file.Imports {
				if p, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(p, module) {
					list = append(list, strings.TrimPrefix(p, module))
				}
			}
			imports[name] = slices.Compact(list)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return imports, nil
}
