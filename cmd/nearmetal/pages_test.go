package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inBlock matches a command line of nearmetal in a block of code, inText one between backquotes, each up to a word that
// the shell interprets.
var (
	inBlock = regexp.MustCompile(`(?:^|\$\(|\| |sudo |&& )(?:\$ )?nearmetal ([^|;&<>#()]+)`)
	inText  = regexp.MustCompile("`(?:sudo )?nearmetal ([^`|;&<>#()]+)")
)

// commandLines returns the command lines of nearmetal in a page.
func commandLines(page string) (list []string) {
	block := false
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		in := inText
		if block {
			in = inBlock
		}
		for _, m := range in.FindAllStringSubmatch(line, -1) {
			list = append(list, m[1])
		}
	}
	return list
}

// Command lines in the pages have existing commands and flags, and name a VM in the current form.
func TestPagesCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			seen++
			if problem := lineProblem(strings.Fields(line)); problem != "" {
				t.Errorf("%s: nearmetal %s: %s", filepath.Base(page), line, problem)
			}
		}
	}
	if seen < 200 {
		t.Errorf("%d command lines", seen)
	}
	for line, want := range map[string]string{"exec vm0 -- hostname": "a VM is NAME/VM", "run --no-prefx -- true": "unknown flag", "run --vms 2 -- mpirun --no": "", "rum -- true": "no command rum"} {
		if got := lineProblem(strings.Fields(line)); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// lineProblem returns the fault of a command line in a page, or "".
func lineProblem(args []string) string {
	root := newRootCommand()
	c, rest, err := root.Find(args)
	if err != nil || c == root && !strings.HasPrefix(args[0], "-") {
		return "no command " + args[0]
	}
	if c.DisableFlagParsing {
		return ""
	}
	if c.Name() == "exec" && len(rest) > 1 && rest[1] == "--" && regexp.MustCompile(`^vm\d+$`).MatchString(rest[0]) {
		return "a VM is NAME/VM"
	}
	if err := c.ParseFlags(rest); err != nil && strings.Contains(err.Error(), "unknown") {
		return err.Error()
	}
	return ""
}
