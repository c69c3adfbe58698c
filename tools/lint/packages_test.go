package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackages(t *testing.T) {
	top := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page := "## Parts\n\n```\na b\n```\n\n" + levelsAfter + ":\n\n```\ncmd\na, a/c\nb\n```\n"
	write("docs/architecture.md", page)
	write("cmd/x/main.go", "package main\n\nimport _ \"nearmetal/internal/a\"\n")
	write("internal/a/a.go", "package a\n\nimport (\n\t\"fmt\"\n\t\"nearmetal/internal/b\"\n)\n")
	write("internal/a/c/c.go", "package c\n")
	write("internal/a/testdata/x.go", "no Go\n")
	write("internal/b/b.go", "package b\n")
	write("internal/b/b_test.go", "package b\n\nimport _ \"nearmetal/internal/a\"\n")
	check := func(want string) {
		t.Helper()
		faults, err := packages(top)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(faults, "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("")
	write("internal/b/more.go", "//go:build vsphere\n\npackage b\n\nimport _ \"nearmetal/internal/a/c\"\n")
	check("b imports a/c, which docs/architecture.md has no lower")
	write("internal/b/more.go", "package b\n")
	write("internal/d/d.go", "package d\n")
	check("docs/architecture.md: the package d is on none of its lines")
	write("docs/architecture.md", strings.Replace(page, "b\n```\n", "b, d, e, d\n```\n", 2))
	check("docs/architecture.md: the package d is there twice\ndocs/architecture.md: there is no package e")
	write("docs/architecture.md", "nothing\n")
	faults, err := packages(top)
	if err != nil || len(faults) == 0 || !strings.Contains(strings.Join(faults, "\n"), "there is no block") {
		t.Errorf("%q %v", faults, err)
	}
}
