// Package hosttree writes the file tree of a host that one does not have: a machine's
// description (internal/topology/machine) and a list of attributes over it.
//
// Each line of the list is one of
//
//	PATH = VALUE     a file; \n in VALUE is a line's end
//	PATH -> TARGET   a symbolic link
//	flags = WORDS    flags of the first CPU in /proc/cpuinfo
//
// PATH has no slash before it; {cpu} and {node} in it stand for each CPU and each node. Blank
// lines and lines that begin with # count for nothing.
package hosttree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"nearmetal/internal/topology/machine"
)

// Write writes the tree into dir, from a description and lists of attributes, all of them
// files. What a later list says of a path counts.
func Write(dir, description string, lists ...string) error {
	f, err := os.Open(description)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := machine.Parse(f)
	if err != nil {
		return fmt.Errorf("%s: %w", description, err)
	}
	for _, file := range m.Files() {
		if err := put(filepath.Join(dir, file.Path), file.Content, file.Link); err != nil {
			return err
		}
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return err
		}
		if err := Add(dir, string(text)); err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
	}
	return nil
}

// Add adds a list of attributes, as text, to a tree.
func Add(dir, list string) error {
	for n, line := range strings.Split(list, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := add(dir, line); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return nil
}

func add(dir, line string) error {
	if path, target, ok := strings.Cut(line, " -> "); ok {
		return put(filepath.Join(dir, strings.TrimSpace(path)), "", strings.TrimSpace(target))
	}
	path, value, ok := strings.Cut(line, "=")
	if !ok {
		return fmt.Errorf("%q: neither = nor ->", line)
	}
	path, value = strings.TrimSpace(path), strings.ReplaceAll(strings.TrimSpace(value), `\n`, "\n")
	if path == "flags" {
		return addFlags(dir, value)
	}
	for _, kind := range []struct{ word, folder, prefix string }{
		{"{cpu}", "sys/devices/system/cpu", "cpu"}, {"{node}", "sys/devices/system/node", "node"},
	} {
		if !strings.Contains(path, kind.word) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(dir, kind.folder))
		if err != nil {
			return err
		}
		for _, e := range entries {
			id, found := strings.CutPrefix(e.Name(), kind.prefix)
			if _, err := strconv.Atoi(id); !found || err != nil {
				continue
			}
			if err := put(filepath.Join(dir, strings.ReplaceAll(path, kind.word, id)), value+"\n", ""); err != nil {
				return err
			}
		}
		return nil
	}
	return put(filepath.Join(dir, path), value+"\n", "")
}

func put(path, content, link string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if link != "" {
		os.Remove(path)
		return os.Symlink(link, path)
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// addFlags puts a line of flags at the end of the first CPU in /proc/cpuinfo.
func addFlags(dir, flags string) error {
	path := filepath.Join(dir, "proc/cpuinfo")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	first, rest, _ := strings.Cut(string(b), "\n\n")
	return os.WriteFile(path, []byte(first+"\nflags\t\t: "+flags+"\n\n"+rest), 0o644)
}
