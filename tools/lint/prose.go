package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// allowedFile has the allowed uses of each word by room, of each idiom by kind of text, and the allowed number of long
// sentences by page: lines "ROOM<tab>NUMBER<tab>WORD".
const allowedFile = "tools/lint/allowed.txt"

//go:embed words.txt
var wordList string

// Prefixes of patterns in words.txt.
const (
	onlyC = "c:"     // the word is looked for only in C
	idiom = "idiom:" // its uses are counted by kind of text instead of by room
)

// placesShown is the maximum number of places that a fault lists: an idiom may have hundreds.
const placesShown = 20

// word is one line of words.txt.
type word struct {
	pattern string // with its prefix
	re      *regexp.Regexp
	instead string
}

func words(list string) ([]word, error) {
	var all []word
	for _, line := range strings.Split(list, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, instead, ok := strings.Cut(line, "\t")
		re, err := regexp.Compile(`(?i)\b(?:` + strings.TrimPrefix(strings.TrimPrefix(pattern, onlyC), idiom) + `)\b`)
		if err != nil || !ok {
			return nil, fmt.Errorf("words.txt: %q: not a pattern, a tab and a word", line)
		}
		all = append(all, word{pattern, re, strings.TrimSpace(instead)})
	}
	return all, nil
}

// use is a room's use of a word.
type use struct{ room, word string }

// prose compares the uses of words below top with the allowed numbers. With shrink it lowers the allowed numbers that
// exceed the uses.
func prose(top string, shrink bool) ([]string, error) {
	list, err := words(wordList)
	if err != nil {
		return nil, err
	}
	allowed, err := readAllowed(filepath.Join(top, allowedFile))
	if err != nil {
		return nil, err
	}
	places, err := find(top, list)
	if err != nil {
		return nil, err
	}
	if err := sentences(top, places); err != nil {
		return nil, err
	}
	list = append(list, word{longSentences, nil, fmt.Sprintf("sentences of at most %d words", longest)})
	var faults []string
	for _, w := range list {
		for u, at := range places {
			if u.word == w.pattern && len(at) > allowed[u] {
				shown := at
				if len(at) > placesShown {
					shown = append(slices.Clone(at[:placesShown]), "… (git diff shows yours)")
				}
				faults = append(faults, fmt.Sprintf("%s: %d uses of %q, %d allowed: write %s\n\t%s",
					u.room, len(at), w.pattern, allowed[u], w.instead, strings.Join(shown, "\n\t")))
			}
		}
	}
	slices.Sort(faults)
	if shrink {
		return faults, writeAllowed(filepath.Join(top, allowedFile), allowed, places)
	}
	return faults, nil
}

// find returns the places ("FILE:LINE: TEXT") of each use below top.
func find(top string, list []word) (map[use][]string, error) {
	places := map[use][]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			switch {
			case rel == "build", rel == "docs/reference", rel == "docs/man", // generated
				rel == "measurements", // data
				rel == "tools/lint", d.Name() == "testdata", rel != "." && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			}
			return nil
		}
		if rel == "CHANGELOG.md" || !d.Type().IsRegular() { // it describes earlier states
			return nil
		}
		var text func([]byte) []byte
		switch filepath.Ext(rel) {
		case ".md", ".yaml", ".yml", ".sh", ".py": // people read suites and workflows; scripts count as a whole
			text = func(b []byte) []byte { return b }
		case ".go":
			text = goProse
		case ".c", ".h":
			text = cProse
		default:
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(bytes.NewReader(text(b)))
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			for _, w := range list {
				if ext := filepath.Ext(rel); strings.HasPrefix(w.pattern, onlyC) && ext != ".c" && ext != ".h" {
					continue
				}
				for range w.re.FindAllIndex(lines.Bytes(), -1) {
					u := use{room(rel), w.pattern}
					if strings.HasPrefix(w.pattern, idiom) {
						u.room = kind(rel)
					}
					places[u] = append(places[u], fmt.Sprintf("%s:%d: %.100s", rel, n, strings.TrimSpace(lines.Text())))
				}
			}
		}
		return lines.Err()
	})
	return places, err
}

// room returns the part of the tree that a file counts for. It is coarse because files move within one.
func room(rel string) string {
	parts := strings.Split(rel, "/")
	n := 1
	if parts[0] == "internal" || parts[0] == "test" {
		n = 2
	}
	return strings.Join(parts[:max(1, min(n, len(parts)-1))], "/")
}

// kind returns the kind of text in a file, for which idioms are counted.
func kind(rel string) string {
	switch filepath.Ext(rel) {
	case ".md":
		return "pages"
	case ".go":
		return "Go"
	case ".c", ".h":
		return "C"
	}
	return "scripts"
}

// goProse returns the source with everything but comments and strings blanked.
func goProse(src []byte) []byte {
	out := blank(src)
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return out
		case token.COMMENT, token.STRING:
			copy(out[file.Offset(pos):], lit)
		}
	}
}

// cProse returns the source with everything but comments and strings blanked.
func cProse(src []byte) []byte {
	out := blank(src)
	for i := 0; i < len(src); {
		rest := src[i:]
		n := 1
		switch {
		case bytes.HasPrefix(rest, []byte("//")):
			n = end(rest, 2, "\n")
			copy(out[i:], rest[:n])
		case bytes.HasPrefix(rest, []byte("/*")):
			n = end(rest, 2, "*/")
			copy(out[i:], rest[:n])
		case rest[0] == '"', rest[0] == '\'':
			for n < len(rest) && rest[n] != rest[0] && rest[n] != '\n' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			copy(out[i:], rest[:n])
		}
		i += n
	}
	return out
}

// end returns the length of rest up to and including stop, which is searched for starting at from.
func end(rest []byte, from int, stop string) int {
	if k := bytes.Index(rest[from:], []byte(stop)); k >= 0 {
		return from + k + len(stop)
	}
	return len(rest)
}

// blank returns src with everything but the ends of lines replaced by spaces.
func blank(src []byte) []byte {
	out := bytes.Repeat([]byte(" "), len(src))
	for i, c := range src {
		if c == '\n' {
			out[i] = '\n'
		}
	}
	return out
}

func readAllowed(path string) (map[use]int, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	allowed := map[use]int{}
	for _, line := range strings.Split(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		n := 0
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: %q: not a room, a number and a word with tabs between", path, line)
		}
		if _, err := fmt.Sscan(f[1], &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		allowed[use{f[0], f[2]}] = n
	}
	return allowed, nil
}

// writeAllowed writes the numbers, each the smaller of the allowed number and the uses.
func writeAllowed(path string, allowed map[use]int, places map[use][]string) error {
	var lines []string
	for u, at := range places {
		if n := min(len(at), allowed[u]); n > 0 {
			lines = append(lines, fmt.Sprintf("%s\t%d\t%s", u.room, n, u.word))
		}
	}
	slices.Sort(lines)
	head := "# How often each room still uses a word of words.txt, each kind of text an idiom, and how many sentences of a page are too\n" +
		"# long. No number may rise; after some were replaced, go run ./tools/lint -shrink lowers them.\n"
	return os.WriteFile(path, []byte(head+strings.Join(lines, "\n")+"\n"), 0o644)
}
