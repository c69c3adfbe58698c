// Package fix makes the changes that package check recommends for a host, in one transaction of package change, and
// has them set at each boot if requested.
package fix

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/host/change"
	"nearmetal/internal/host/check"
	"nearmetal/internal/journal"
)

// The names of this package's transactions.
const (
	fixName     = "fix"
	persistName = "persist"
)

// Options state where the package works; the zero value is this host.
type Options struct {
	Dir  string // of journals; "": change.Dir
	Root string // a captured tree, for tests
}

func (o Options) dir() string {
	if o.Dir == "" {
		return change.Dir
	}
	return o.Dir
}

// Failure is a write that failed, and its check.
type Failure struct {
	ID  string // of the row
	Err error
}

// Apply makes the writes of fixes. A write that fails is a Failure and the others continue, because each value is
// useful independently. If ctx ends, or all writes failed, everything is restored. done is the number of successful
// writes.
func Apply(ctx context.Context, o Options, fixes []check.Fix) (done int, failed []Failure, err error) {
	t, err := change.Begin(o.dir(), fixName)
	if err != nil {
		return 0, nil, err
	}
	t.Under(o.Root)
	for _, f := range fixes {
		if err := ctx.Err(); err != nil {
			_, bad := t.Rollback()
			return 0, nil, errors.Join(context.Cause(ctx), bad)
		}
		n, list := applyRow(t, f)
		done += n
		failed = append(failed, list...)
	}
	if done == 0 {
		_, err := t.Rollback()
		return 0, failed, err
	}
	return done, failed, t.Commit()
}

// applyRow makes the writes of one row.
func applyRow(t *change.Transaction, f check.Fix) (done int, failed []Failure) {
	var values []change.Value
	for _, w := range f.Writes {
		if w.PID == 0 {
			values = append(values, change.Value{Path: w.File, Value: w.Value})
			continue
		}
		if err := t.Unlock(w.Name, w.PID); err != nil {
			failed = append(failed, Failure{f.Row.ID, err})
		} else {
			done++
		}
	}
	errs := split(t.Write(values...))
	for _, err := range errs {
		failed = append(failed, Failure{f.Row.ID, err})
	}
	return done + max(0, len(values)-len(errs)), failed
}

// split returns the errors that errors.Join joined.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// Undo reverts all changes of Apply and Persist, and returns them.
func Undo(o Options) ([]journal.Change, error) {
	return change.Undo(o.dir(), func(name string) bool { return name == fixName || name == persistName })
}

// Setting is a value that Apply set and that is in force.
type Setting struct {
	Path   string
	Value  string // current value
	Before string // value before the first fix
}

// settings returns Apply's settings, in the order in which they were first set.
func settings(o Options) ([]Setting, error) {
	infos, err := change.List(o.dir())
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var list []Setting
	for _, i := range infos {
		if i.Name != fixName && i.Name != persistName || i.Open {
			continue
		}
		for _, c := range i.Changes {
			path := c.Args["path"]
			if c.Kind != "value" || seen[path] {
				continue
			}
			seen[path] = true
			now, err := journal.ReadValue(o.Root + path)
			if err != nil || now == c.Args["before"] {
				continue // gone, or reverted by another program
			}
			list = append(list, Setting{path, now, c.Args["before"]})
		}
	}
	return list, nil
}

// Describe formats a fix's writes for people, equal ones of many CPUs in one line: "PATH: BEFORE -> AFTER".
func Describe(f check.Fix) []string {
	type line struct {
		path, text string
		n          int
	}
	var lines []line
	at := map[string]int{}
	for _, w := range f.Writes {
		if w.PID != 0 {
			lines = append(lines, line{text: fmt.Sprintf("locked memory of %s (process %d): %s -> unlimited", w.Name, w.PID, w.Before), n: 1})
			continue
		}
		path := general(w.File)
		before := w.Before
		if before == "" {
			before = "?"
		}
		text := fmt.Sprintf("%s -> %s", before, w.Value)
		key := path + "\x00" + text
		if i, ok := at[key]; ok {
			lines[i].n++
			lines[i].path = path
			continue
		}
		at[key] = len(lines)
		lines = append(lines, line{path: w.File, text: text, n: 1})
	}
	var out []string
	for _, l := range lines {
		switch {
		case l.path == "":
			out = append(out, l.text)
		case l.n > 1:
			out = append(out, fmt.Sprintf("%s (%d files): %s", l.path, l.n, l.text))
		default:
			out = append(out, l.path+": "+l.text)
		}
	}
	return out
}

// general replaces the number of a CPU in a path by an asterisk.
func general(path string) string {
	const cpu = "/sys/devices/system/cpu/cpu"
	rest, ok := strings.CutPrefix(path, cpu)
	if !ok {
		return path
	}
	return cpu + "*" + strings.TrimLeft(rest, "0123456789")
}
