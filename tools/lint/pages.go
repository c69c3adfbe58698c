package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// pages returns the Markdown files below top, as paths relative to it: the hand-written ones, or all of them with the
// generated ones.
func pages(top string, generated bool) ([]string, error) {
	var list []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && (rel == "build" || rel == ".git" || d.Name() == "testdata" || rel == "docs/reference" && !generated):
			return fs.SkipDir
		case filepath.Ext(rel) == ".md" && d.Type().IsRegular():
			list = append(list, rel)
		}
		return nil
	})
	return list, err
}

// longest is the maximum number of words in a sentence of a page.
const longest = 30

// longSentences is the name, in allowedFile, of a page's sentences of more than longest words.
const longSentences = "long sentences"

// sentences adds the long sentences of the pages below top to places. Each page is a room of its own. CHANGELOG.md and
// measurements/, which is data, are left out.
func sentences(top string, places map[use][]string) error {
	list, err := pages(top, false)
	if err != nil {
		return err
	}
	for _, rel := range list {
		if rel == "CHANGELOG.md" || strings.HasPrefix(rel, "measurements/") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(top, rel))
		if err != nil {
			return err
		}
		for _, p := range paragraphs(string(b)) {
			for _, s := range split(p.text) {
				if n := len(strings.Fields(s)); n > longest {
					u := use{rel, longSentences}
					places[u] = append(places[u], fmt.Sprintf("%s:%d: %d words: %.100s", rel, p.line, n, s))
				}
			}
		}
	}
	return nil
}

// paragraph is a run of prose: lines of a paragraph, an item of a list, or a cell of a table.
type paragraph struct {
	line int // of its beginning, from 1
	text string
}

var item = regexp.MustCompile(`^([-*]|\d+\.) `)

// paragraphs returns the prose of a page, without headings and blocks of code.
func paragraphs(page string) []paragraph {
	var list []paragraph
	var now paragraph
	end := func() {
		if now.text != "" {
			list = append(list, now)
		}
		now = paragraph{}
	}
	code := false
	for i, line := range strings.Split(page, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			code = !code
			continue
		case code:
			continue
		case line == "" || line[0] == '#':
			end()
			continue
		case line[0] == '|':
			end()
			for _, cell := range strings.Split(strings.ReplaceAll(line, `\|`, " "), "|") {
				if cell = strings.TrimSpace(cell); cell != "" {
					list = append(list, paragraph{i + 1, cell})
				}
			}
			continue
		case item.MatchString(line):
			end()
		}
		if now.text == "" {
			now.line = i + 1
		}
		now.text = strings.TrimSpace(now.text + " " + line)
	}
	end()
	return list
}

// split returns the sentences of a paragraph. A sentence ends at a full stop, an exclamation or a question mark before
// a space and a character that can begin another: any but a lower-case letter.
func split(text string) []string {
	var list []string
	words := strings.Fields(text)
	from := 0
	for i, w := range words {
		bare := strings.TrimRight(w, ")\"*_`")
		if bare == "" || !strings.ContainsAny(bare[len(bare)-1:], ".!?") {
			continue
		}
		if i+1 == len(words) || !unicode.IsLower([]rune(words[i+1])[0]) {
			list = append(list, strings.Join(words[from:i+1], " "))
			from = i + 1
		}
	}
	if from < len(words) {
		list = append(list, strings.Join(words[from:], " "))
	}
	return list
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inCode  = regexp.MustCompile("`[^`]*`")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// links checks that the target of each link of a page to a file of the tree, or to a heading of a page, exists.
func links(top string) ([]string, error) {
	list, err := pages(top, true)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, rel := range list {
		if strings.HasPrefix(rel, "internal/") { // a part of a page on another site
			continue
		}
		b, err := os.ReadFile(filepath.Join(top, rel))
		if err != nil {
			return nil, err
		}
		code := false
		for i, line := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if code {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(inCode.ReplaceAllString(line, "x"), -1) {
				if why := follow(top, rel, m[1]); why != "" {
					faults = append(faults, fmt.Sprintf("%s:%d: %s: %s", rel, i+1, m[1], why))
				}
			}
		}
	}
	return faults, nil
}

// follow returns the reason why a link of the page rel is broken, or "" if it is not, or refers to another site.
func follow(top, rel, to string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return ""
	}
	path, anchor, _ := strings.Cut(to, "#")
	if path == "" {
		path = filepath.Base(rel)
	}
	at := filepath.Join(top, filepath.Dir(rel), path)
	if _, err := os.Stat(at); err != nil {
		return "there is no such file"
	}
	if anchor == "" || filepath.Ext(at) != ".md" {
		return ""
	}
	b, err := os.ReadFile(at)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(b)), anchor) {
		return "the page has no heading of that name"
	}
	return ""
}

// anchors returns the names that a forge generates for the headings of a page, and those that the page defines (<a
// id="…">).
func anchors(page string) []string {
	seen := map[string]int{}
	var list []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		if n := seen[name]; n > 0 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		seen[name]++
		list = append(list, name)
	}
	for _, m := range written.FindAllStringSubmatch(page, -1) {
		list = append(list, m[1])
	}
	return list
}

var written = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
