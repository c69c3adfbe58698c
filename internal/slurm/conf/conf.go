// Package conf reads Slurm's configuration files: slurm.conf, gres.conf, cgroup.conf and plugstack.conf. It keeps the
// file and line of each entry for error messages.
package conf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Limits of the input; a typical configuration has a few hundred lines.
const (
	maxLines    = 1 << 16
	maxLine     = 64 << 10 // bytes, continuations joined
	maxIncludes = 64
	maxDepth    = 8
)

// Pair is one Key=Value.
type Pair struct {
	Key, Value string
}

// Line is one logical line, with continuations joined and without its comment.
type Line struct {
	File   string
	Number int // of its first physical line, from 1
	Pairs  []Pair
}

// Where returns the position of the line as file:line.
func (l *Line) Where() string { return fmt.Sprintf("%s:%d", l.File, l.Number) }

// Get returns the value of a key in the line. Keys are case-insensitive (slurm.conf(5)).
func (l *Line) Get(key string) (string, bool) {
	for _, p := range l.Pairs {
		if strings.EqualFold(p.Key, key) {
			return p.Value, true
		}
	}
	return "", false
}

// Config is the content of a configuration file and its includes.
type Config struct {
	File  string
	Lines []*Line
	place func(string) string // maps an absolute path of the host to a readable path
}

// Last returns the value of a key and its line. If several lines set the key, the last one applies. ok is false if no
// line sets it.
func (c *Config) Last(key string) (value string, line *Line, ok bool) {
	for _, l := range c.Lines {
		if len(l.Pairs) > 0 && strings.EqualFold(l.Pairs[0].Key, key) {
			value, line, ok = l.Pairs[0].Value, l, true
		}
	}
	return value, line, ok
}

// Records returns the lines that begin with a key, such as NodeName or Name.
func (c *Config) Records(key string) []*Line {
	var out []*Line
	for _, l := range c.Lines {
		if len(l.Pairs) > 0 && strings.EqualFold(l.Pairs[0].Key, key) {
			out = append(out, l)
		}
	}
	return out
}

// Read reads a file and its includes (Include FILE, relative to the file's directory; patterns are not expanded). An
// error names file and line.
func Read(name string) (*Config, error) {
	return ReadOf(func(path string) string { return path }, name)
}

// ReadOf is Read for another host: place maps an absolute path of an include to the path at which it can be read.
func ReadOf(place func(string) string, name string) (*Config, error) {
	c := &Config{File: name, place: place}
	includes := 0
	return c, c.read(name, 0, &includes)
}

func (c *Config) read(name string, depth int, includes *int) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", name)
	}
	return c.parse(f, name, depth, includes)
}

// Parse parses the text of a configuration; name is its name in errors. Includes are relative to name's directory.
func Parse(r io.Reader, name string) (*Config, error) {
	c := &Config{File: name, place: func(path string) string { return path }}
	includes := 0
	return c, c.parse(r, name, 0, &includes)
}

func (c *Config) parse(r io.Reader, name string, depth int, includes *int) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxLine)
	number, first := 0, 0
	var joined strings.Builder
	for scan.Scan() {
		number++
		text := scan.Text()
		if joined.Len() == 0 {
			first = number
		}
		if rest, more := strings.CutSuffix(text, `\`); more {
			joined.WriteString(rest)
			joined.WriteByte(' ')
			if joined.Len() > maxLine {
				return fmt.Errorf("%s:%d: the line and its continuations are over %d bytes", name, first, maxLine)
			}
			continue
		}
		joined.WriteString(text)
		if err := c.line(joined.String(), name, first, depth, includes); err != nil {
			return err
		}
		joined.Reset()
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, number+1, err)
	}
	if joined.Len() > 0 {
		return c.line(joined.String(), name, first, depth, includes)
	}
	return nil
}

// line parses one logical line.
func (c *Config) line(text, name string, number, depth int, includes *int) error {
	text = strings.TrimSpace(uncomment(text))
	if text == "" {
		return nil
	}
	if word, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(word, "include") {
		*includes++
		if *includes > maxIncludes || depth >= maxDepth {
			return fmt.Errorf("%s:%d: more than %d includes, or more than %d deep", name, number, maxIncludes, maxDepth)
		}
		file := strings.Trim(strings.TrimSpace(rest), `"`)
		if filepath.IsAbs(file) {
			file = c.place(file)
		} else {
			file = filepath.Join(filepath.Dir(name), file)
		}
		if err := c.read(file, depth+1, includes); err != nil {
			return fmt.Errorf("%s:%d: include: %w", name, number, err)
		}
		return nil
	}
	if len(c.Lines) >= maxLines {
		return fmt.Errorf("%s:%d: more than %d lines", name, number, maxLines)
	}
	pairs, err := pairsOf(text)
	if err != nil {
		return fmt.Errorf("%s:%d: %w", name, number, err)
	}
	c.Lines = append(c.Lines, &Line{File: name, Number: number, Pairs: pairs})
	return nil
}

// uncomment removes the text after a # that is not escaped.
func uncomment(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] == '#' && (i == 0 || text[i-1] != '\\') {
			return text[:i]
		}
	}
	return text
}

// pairsOf splits a line into Key=Value; a value may be quoted.
func pairsOf(text string) ([]Pair, error) {
	var pairs []Pair
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		key, rest, ok := strings.Cut(text, "=")
		// Slurm also accepts Key+=Value.
		key = strings.TrimSpace(strings.TrimSuffix(key, "+"))
		if !ok || key == "" || strings.ContainsAny(key, " \t\"") {
			word, _, _ := strings.Cut(text, " ")
			return nil, fmt.Errorf("%q is not Key=Value", word)
		}
		rest = strings.TrimLeft(rest, " \t")
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, fmt.Errorf("the quote of %s is not closed", key)
			}
		} else {
			end := strings.IndexAny(rest, " \t")
			if end < 0 {
				end = len(rest)
			}
			value, rest = rest[:end], rest[end:]
		}
		pairs = append(pairs, Pair{key, value})
		text = rest
	}
	return pairs, nil
}
