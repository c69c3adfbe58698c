package cache

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// tmpPrefix marks files that are being written.
const tmpPrefix = ".new-"

// tmpAge is the age from which a file that is being written counts as abandoned by a dead writer.
const tmpAge = time.Hour

// Trim keeps the most recently used entries of each kind, and removes the others. The kind is the part of an entry's
// name before the first hyphen; keep has the number of entries to keep of each kind, and kinds that it does not name
// are not touched. A process that has a removed entry open can continue to use it.
func (d *Dir) Trim(keep map[string]int) {
	list, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	type entry struct {
		name string
		used time.Time
	}
	kinds := map[string][]entry{}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			if time.Since(info.ModTime()) > tmpAge {
				os.Remove(filepath.Join(d.path, e.Name()))
			}
			continue
		}
		kind, _, _ := strings.Cut(e.Name(), "-")
		kinds[kind] = append(kinds[kind], entry{e.Name(), info.ModTime()})
	}
	for kind, entries := range kinds {
		n, named := keep[kind]
		if !named || len(entries) <= n {
			continue
		}
		sort.Slice(entries, func(i, j int) bool { return entries[i].used.After(entries[j].used) })
		for _, e := range entries[n:] {
			os.Remove(filepath.Join(d.path, e.name))
		}
	}
}
