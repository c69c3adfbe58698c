package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The packages below internal/cluster stay small, because a newcomer reads one at a time.
const (
	sizedBelow  = "internal/cluster"
	maxPackage  = 2500 // lines of a package, without its tests
	maxTypeSize = 15   // fields of a type; an embedded type counts as one
)

// sizes checks the packages and types below sizedBelow.
func sizes(top string) ([]string, error) {
	var faults []string
	lines := map[string]int{}
	err := filepath.WalkDir(filepath.Join(top, sizedBelow), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		lines[filepath.Dir(rel)] += bytes.Count(src, []byte("\n"))
		file, err := parser.ParseFile(token.NewFileSet(), path, src, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				if s, ok := t.Type.(*ast.StructType); ok {
					if n := fields(s); n > maxTypeSize {
						faults = append(faults, fmt.Sprintf("%s: type %s has %d fields, more than %d: group them by their owner", rel, t.Name.Name, n, maxTypeSize))
					}
				}
			}
			return true
		})
		return nil
	})
	for name, n := range lines {
		if n > maxPackage {
			faults = append(faults, fmt.Sprintf("%s has %d lines, more than %d: split it", name, n, maxPackage))
		}
	}
	return faults, err
}

// fields counts the fields of a struct.
func fields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
