package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"
)

// subjectsSince is the commit since which subjects are short.
const (
	subjectsSince = "9c86110"
	subjectMost   = 72 // characters
)

// subjects checks the commits since subjectsSince. In a tree without git, or in a shallow clone, it reports that it
// does not.
func subjects() ([]string, error) {
	if exec.Command("git", "cat-file", "-e", subjectsSince+"^{commit}").Run() != nil {
		fmt.Println("lint: commit subjects are not checked: there is no commit " + subjectsSince + " here")
		return nil, nil
	}
	out, err := output("git", "log", "--no-merges", "--format=%h %s", subjectsSince+"..HEAD")
	if err != nil {
		return nil, err
	}
	return longSubjects(out), nil
}

// longSubjects checks lines "HASH SUBJECT".
func longSubjects(log string) []string {
	var faults []string
	for _, line := range strings.Split(log, "\n") {
		hash, subject, _ := strings.Cut(line, " ")
		if n := utf8.RuneCountInString(subject); n > subjectMost {
			faults = append(faults, fmt.Sprintf("commit %s: its subject has %d characters, at most %d: %s", hash, n, subjectMost, subject))
		}
	}
	return faults
}

// goMod is the output of go mod edit -json.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
}

// direct compares the marks // indirect of go.mod with the imports of the tree, like go mod tidy, but without the
// network.
func direct() ([]string, error) {
	out, err := output("go", "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var m goMod
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return nil, fmt.Errorf("go.mod: %w", err)
	}
	out, err = output("go", "list", "-tags", tags, "-f",
		`{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}`, "./...")
	if err != nil {
		return nil, err
	}
	return misMarked(m, strings.Fields(out)), nil
}

// tags are the build tags of tests that are run on demand.
const tags = "browser,sacct,unified"

func misMarked(m goMod, imports []string) []string {
	used := map[string]bool{}
	for _, path := range imports {
		best := ""
		for _, r := range m.Require {
			if (path == r.Path || strings.HasPrefix(path, r.Path+"/")) && len(r.Path) > len(best) {
				best = r.Path
			}
		}
		used[best] = true
	}
	var faults []string
	for _, r := range m.Require {
		switch {
		case r.Indirect && used[r.Path]:
			faults = append(faults, "go.mod: "+r.Path+" is imported, but marked // indirect: run go mod tidy")
		case !r.Indirect && !used[r.Path]:
			faults = append(faults, "go.mod: "+r.Path+" is not imported: run go mod tidy")
		}
	}
	return faults
}

// thirdPartyFile lists the modules in nearmetal's programs, with their licences.
const thirdPartyFile = "THIRD_PARTY.md"

// thirdParty checks that the list has each module with its version.
func thirdParty() ([]string, error) {
	page, err := os.ReadFile(thirdPartyFile)
	if err != nil {
		return nil, err
	}
	out, err := output("go", "list", "-deps", "-f", `{{with .Module}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}`, "./cmd/...")
	if err != nil {
		return nil, err
	}
	return unlisted(string(page), out), nil
}

// unlisted compares lines "MODULE VERSION" with the rows of the page.
func unlisted(page, modules string) []string {
	var faults []string
	seen := map[string]bool{}
	for _, line := range strings.Split(modules, "\n") {
		path, version, ok := strings.Cut(line, " ")
		if ok && !seen[line] && !strings.Contains(page, "| "+path+" | "+version+" |") {
			faults = append(faults, thirdPartyFile+": "+line+" is not listed: run make licenses")
		}
		seen[line] = true
	}
	return faults
}

func output(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv[:2], " "), err)
	}
	return string(out), nil
}
