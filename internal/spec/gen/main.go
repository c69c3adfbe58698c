// Command gen writes docs/reference/cluster.md and cluster.schema.json from the
// types of package spec, their tags and their comments:
//
//	go run ./gen SPEC-DIR REFERENCE-DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen SPEC-DIR REFERENCE-DIR")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// generate writes all pages to the directory out; source is the directory of package spec.
func generate(source, out string) error {
	pages, err := pages(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pages returns the text of each generated file by its name.
func pages(source string) (map[string][]byte, error) {
	comments, err := readComments(source)
	if err != nil {
		return nil, err
	}
	page, err := markdown(comments)
	if err != nil {
		return nil, err
	}
	schema, err := jsonSchema(comments)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"cluster.md": page, "cluster.schema.json": schema}, nil
}
