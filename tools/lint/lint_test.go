package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProse(t *testing.T) {
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
	check := func(shrink bool) string {
		t.Helper()
		faults, err := prose(top, shrink)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(faults, "\n")
	}
	write("internal/a/b/x.go", "package b\n\n// F mends one.\nfunc mends() string { return \"it mends\" }\n")
	write("fabric/y.c", "/* it\n * mends */ int mends = '\"'; // mends\nchar *s = \"mends \\\" mends\";\n")
	write("docs/z.md", "It lends. A lender forelends.\n")
	write("docs/reference/z.md", "It lends.\n")
	write("CHANGELOG.md", "It lends.\n")
	write(allowedFile, "internal/a\t2\tmends?|mended|mending\nfabric\t4\tmends?|mended|mending\ndocs\t1\tlends?|lent\n")
	if got := check(false); got != "" {
		t.Errorf("what is allowed is a fault: %s", got)
	}
	write("docs/more.md", "It\nlent.\n")
	if got := check(true); !strings.Contains(got, `docs: 2 uses of "lends?|lent", 1 allowed`) || !strings.Contains(got, "docs/more.md:2: lent.") {
		t.Errorf("one more is no fault, or is not named: %q", got)
	}
	write("fabric/y.c", "// mends\n")
	if got := check(true); !strings.Contains(got, "docs: 2") {
		t.Errorf("-shrink has raised a number: %q", got)
	}
	write("docs/z.md", "It lends. A look.\n")
	write("fabric/y.c", "// a look\n")
	if got := check(false); !strings.Contains(got, "fabric: 1 uses") || strings.Contains(got, `docs: 1 uses of "c:`) {
		t.Errorf("a word of C counts in a page, or not in C: %q", got)
	}
	for _, name := range []string{"internal/a/suites/s.yaml", "scripts/s.sh", "scripts/s.py"} {
		write(name, "# for want of a page\nabout: for want of it\n")
		if got, want := check(false), room(name)+`: 2 uses of "for want of"`; !strings.Contains(got, want) {
			t.Errorf("%s is not read: %q", name, got)
		}
		write(name, "")
	}
	write("docs/z.md", "It lends. A lender forelends.\n")
	write("fabric/y.c", "// mends mends\n")
	if got := check(false); !strings.Contains(got, "fabric: 2 uses") {
		t.Errorf("-shrink has not lowered a number: %q", got)
	}
	write("fabric/y.c", "")
	write("docs/z.md", "A folder.\n")
	write("internal/a/b/x.go", "package b\n\n// A folder.\n")
	write(allowedFile, "pages\t1\tidiom:folders?\n")
	if got := check(false); !strings.Contains(got, `Go: 1 uses of "idiom:folders?", 0 allowed`) || strings.Contains(got, "pages: 1") {
		t.Errorf("an idiom is not counted by kind of text: %q", got)
	}
}

func TestSplit(t *testing.T) {
	text := "It is 1.5 GiB (see f.go). `up` starts it? Yes! It ends, e.g. by Ctrl-C. **Bold** too."
	want := []string{"It is 1.5 GiB (see f.go).", "`up` starts it?", "Yes!", "It ends, e.g. by Ctrl-C.", "**Bold** too."}
	if got := split(text); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A sentence of a paragraph, an item and a cell counts; one of a heading or of code does not.
func TestSentences(t *testing.T) {
	top := t.TempDir()
	long := strings.Repeat("word ", longest) + "end."
	half := strings.Repeat("word ", longest/2+1)
	page := "# " + long + "\n\n```\n" + long + "\n```\n" + half + "\n" + half + "\n\n- " + half + "\n- " + half + "\n| " + long + " | " + half + " |\n"
	if err := os.WriteFile(filepath.Join(top, "p.md"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	places := map[use][]string{}
	if err := sentences(top, places); err != nil {
		t.Fatal(err)
	}
	got := places[use{"p.md", longSentences}]
	if len(got) != 2 || !strings.HasPrefix(got[0], "p.md:6: 32 words: ") || !strings.HasPrefix(got[1], "p.md:11: 31 words: ") {
		t.Errorf("%q", got)
	}
}

func TestLinks(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/a.md#what-it-is-for) [c](docs/a.md#what-it-is-for-1) `[x](y)` [d](https://example.org/x)\n```\n[x](y)\n```\n",
		"docs/a.md": "## What it is (for)?\n## What it is for\n<a id=\"here\"></a> [up](../README.md) [self](#here)\n[1](b.md) [2](../README.md#no)\n",
	} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := links(top)
	want := []string{"docs/a.md:4: b.md: there is no such file", "docs/a.md:4: ../README.md#no: the page has no heading of that name"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLongSubjects(t *testing.T) {
	log := "a1 plan: " + strings.Repeat("ö", 66) + "\nb2 plan: " + strings.Repeat("x", 67) + "\n"
	if got := longSubjects(log); len(got) != 1 || !strings.Contains(got[0], "commit b2: its subject has 73") {
		t.Errorf("got %q", got)
	}
}

func TestMisMarked(t *testing.T) {
	var m goMod
	text := `{"Require":[{"Path":"a.org/x","Indirect":true},{"Path":"a.org/x/v2"},{"Path":"a.org/y"},{"Path":"a.org/z","Indirect":true}]}`
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(misMarked(m, []string{"fmt", "a.org/x/p", "a.org/x/v2/p"}), "\n")
	want := "go.mod: a.org/x is imported, but marked // indirect: run go mod tidy\ngo.mod: a.org/y is not imported: run go mod tidy"
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestUnlisted(t *testing.T) {
	page := "| module | version |\n| a.org/x | v1.2.0 | MIT |\n"
	got := unlisted(page, "\na.org/x v1.2.0\na.org/x v1.2.1\na.org/y v1.0.0\na.org/y v1.0.0\n")
	if len(got) != 2 {
		t.Errorf("got %q", got)
	}
}
