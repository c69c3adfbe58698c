// Package journal writes down every change to a host before it is made, so that
// it can be undone: when the cluster ends, when it fails, or, after a kill -9 or a
// power cut, by the next nearmetal that starts.
//
// A journal is a file of JSON lines. A line is either a change ("do") or the note
// that a change was undone ("undone"). A change is on disk before Record returns.
// What is read back is the user's own file, but it is checked all the same: a change
// is undone only if its kind is known and its arguments are sound.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// maxLine and maxEntries bound what a journal may hold, in bytes and lines: one that
// is larger was not written by nearmetal.
const (
	maxLine    = 16 << 10
	maxEntries = 65536 // a host of 1,000 CPUs has some ten values a CPU
)

// Change is one change to a host. Kind names its undo function; Args are that
// function's arguments.
type Change struct {
	Kind string            `json:"kind"`
	Args map[string]string `json:"args"`
}

// String is the change in words, for the line that says what was removed.
func (c Change) String() string {
	k, ok := kinds[c.Kind]
	if !ok {
		return c.Kind
	}
	return k.say(c)
}

// entry is a line of the file.
type entry struct {
	Do     *Change `json:"do,omitempty"`
	Undone *int    `json:"undone,omitempty"` // the number of the change, counted from 0
}

// Journal is an open journal. Its methods may be called from several goroutines.
type Journal struct {
	mu      sync.Mutex
	f       *os.File
	changes []Change
	undone  []bool
}

// Open opens the journal at path, made with mode 0600 if it is not there, and reads
// what stands in it. A last line cut short (the machine went down while it was
// written) is dropped: the change that it announces was never made.
func Open(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{f: f}
	end, err := j.load(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	if err := f.Truncate(end); err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

// load reads the entries and gives the offset behind the last whole one, in bytes.
func (j *Journal) load(r io.Reader) (int64, error) {
	var end int64
	br := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return 0, fmt.Errorf("line %d: longer than %d bytes", n, maxLine)
		}
		if n > 2*maxEntries {
			return 0, fmt.Errorf("more than %d lines", 2*maxEntries)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case e.Do != nil:
			j.changes = append(j.changes, *e.Do)
			j.undone = append(j.undone, false)
		case e.Undone != nil && *e.Undone >= 0 && *e.Undone < len(j.changes):
			j.undone[*e.Undone] = true
		default:
			return 0, fmt.Errorf("line %d: neither a change nor the undoing of one", n)
		}
		end += int64(len(line))
	}
}

// write appends entries.
func (j *Journal) write(list ...entry) error {
	var lines []byte
	for _, e := range list {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if len(b) >= maxLine {
			return errors.New("journal: entry too long")
		}
		lines = append(append(lines, b...), '\n')
	}
	if _, err := j.f.Write(lines); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Record writes c down. It is called before the change is made; when it fails, the
// change must not be made. The number it gives is the one that Undo takes.
func (j *Journal) Record(c Change) (int, error) { return j.RecordAll([]Change{c}) }

// RecordAll is Record for several changes at once, which are on disk together when it
// returns. It gives the number of the first; the others follow it.
func (j *Journal) RecordAll(list []Change) (int, error) {
	var entries []entry
	for i := range list {
		k, ok := kinds[list[i].Kind]
		if !ok {
			return 0, fmt.Errorf("journal: no such kind of change: %q", list[i].Kind)
		}
		if err := k.valid(list[i]); err != nil {
			return 0, fmt.Errorf("journal: %s: %w", list[i].Kind, err)
		}
		entries = append(entries, entry{Do: &list[i]})
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	first := len(j.changes)
	if first+len(list) > maxEntries {
		return 0, fmt.Errorf("journal: more than %d changes", maxEntries)
	}
	if err := j.write(entries...); err != nil {
		return 0, err
	}
	// Reason for the sync: the change that follows may outlive a crash of the machine. That
	// a change was undone needs none: undoing it again does nothing.
	if err := j.f.Sync(); err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	j.changes = append(j.changes, list...)
	j.undone = append(j.undone, make([]bool, len(list))...)
	return first, nil
}

// Changes gives the changes that are not undone yet, in their order.
func (j *Journal) Changes() []Change {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []Change
	for n, c := range j.changes {
		if !j.undone[n] {
			list = append(list, c)
		}
	}
	return list
}

// Undo undoes change number n; a second call does nothing.
func (j *Journal) Undo(n int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n < 0 || n >= len(j.changes) {
		return fmt.Errorf("journal: no change number %d", n)
	}
	_, err := j.undo(n)
	return err
}

func (j *Journal) undo(n int) (did bool, err error) {
	if j.undone[n] {
		return false, nil
	}
	c := j.changes[n]
	k, ok := kinds[c.Kind]
	if !ok {
		return false, fmt.Errorf("journal: no such kind of change: %q", c.Kind)
	}
	if err := k.valid(c); err != nil {
		return false, fmt.Errorf("journal: %s: %w", c.Kind, err)
	}
	did, err = k.undo(c)
	if err != nil {
		return false, fmt.Errorf("cannot undo %s: %w", c, err)
	}
	j.undone[n] = true
	return did, j.write(entry{Undone: &n})
}

// UndoAll undoes, last first, what is not undone yet. It goes on after an error. It
// gives the changes that were still in force and are now gone, and the joined errors.
func (j *Journal) UndoAll() ([]Change, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var did []Change
	var errs []error
	for n := len(j.changes) - 1; n >= 0; n-- {
		ok, err := j.undo(n)
		if ok {
			did = append(did, j.changes[n])
		}
		errs = append(errs, err)
	}
	return did, errors.Join(errs...)
}

// Forget takes changes off the journal that are not to be undone: others have taken their place. It is
// on disk when it returns.
func (j *Journal) Forget(match func(Change) bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var entries []entry
	for n := range j.changes {
		if !j.undone[n] && match(j.changes[n]) {
			j.undone[n] = true
			entries = append(entries, entry{Undone: &n})
		}
	}
	if err := j.write(entries...); err != nil {
		return err
	}
	return j.f.Sync()
}

// Close closes the file. The journal stays where it is.
func (j *Journal) Close() error { return j.f.Close() }

// gone tells whether err says that there is nothing left to undo.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
