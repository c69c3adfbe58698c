// Package journal records every change to a host before it is made, so that it can be undone: when the cluster ends,
// when it fails, or, after a kill -9 or a power cut, by the next nearmetal that starts.
//
// A journal is a file of JSON lines. A line is either a change ("do") or the note that a change was undone ("undone").
// A change is on disk before Record returns. The file belongs to the user, but its content is checked all the same: a
// change is undone only if its kind is known and its arguments are sound.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// maxLine and maxEntries bound a journal, in bytes per line and in lines. A larger one was not written by nearmetal.
const (
	maxLine    = 16 << 10
	maxEntries = 65536 // a host of 1,000 CPUs has some ten values per CPU
)

// Change is one change to a host. Kind selects its undo function; Args are that function's arguments.
type Change struct {
	Kind string            `json:"kind"`
	Args map[string]string `json:"args"`
}

// String describes the change, for the line that reports what was removed.
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
	f       Disk
	end     int64 // bytes of whole lines
	broken  error // why nothing more can be written; nil: writable
	changes []Change
	undone  []bool
	unnoted []int // undone, but not yet noted in the file
}

// Disk is the interface of a journal's file.
type Disk interface {
	io.ReadWriteCloser
	io.Seeker
	Sync() error
	Truncate(size int64) error
}

// openFile opens the file of a journal.
var openFile = func(path string) (Disk, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }

// OnOpen passes the file of each journal that is opened from now on through f, for tests of failing disks. stop reverts
// that.
func OnOpen(f func(Disk) Disk) (stop func()) {
	before := openFile
	openFile = func(path string) (Disk, error) {
		file, err := before(path)
		if err != nil {
			return nil, err
		}
		return f(file), nil
	}
	return func() { openFile = before }
}

// Open opens the journal at path and reads its entries. It creates the file with mode 0600 if there is none. It drops
// what a power cut left after the last whole line (a truncated line, blocks of zeros that were never written), because
// the change announced there was never made.
func Open(path string) (*Journal, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{f: f}
	if j.end, err = j.load(f); err == nil {
		err = j.cut()
	}
	if err == nil && j.end == 0 {
		// The name of a new file survives a power cut only if its directory is on disk.
		err = SyncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

// cut removes everything after the last whole line.
func (j *Journal) cut() error {
	if err := j.f.Truncate(j.end); err != nil {
		return err
	}
	_, err := j.f.Seek(j.end, io.SeekStart)
	return err
}

// synced is called with each directory that SyncDir has put on disk.
var synced = func(path string) {}

// OnSyncDir has f called with each directory that was put on disk, for tests of power cuts. stop reverts that.
func OnSyncDir(f func(path string)) (stop func()) {
	before := synced
	synced = f
	return func() { synced = before }
}

// SyncDir syncs a directory, so that the names in it survive a power cut.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return err
	}
	synced(path)
	return nil
}

// load reads the entries and returns the offset after the last whole one, in bytes.
func (j *Journal) load(r io.Reader) (int64, error) {
	var end int64
	br := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if err == io.EOF || bytes.IndexByte(line, 0) >= 0 {
			return end, nil // the end, or a block that never reached the disk
		}
		if err == bufio.ErrBufferFull {
			return 0, fmt.Errorf("line %d: longer than %d bytes", n, maxLine)
		}
		if err != nil {
			return 0, err
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

// write appends entries. If it fails, nothing of them stays. If that is impossible, this Journal never writes again, so
// that the entries that Open reads stay whole.
func (j *Journal) write(sync bool, list ...entry) error {
	if j.broken != nil {
		return fmt.Errorf("journal: %w", j.broken)
	}
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
	n, err := j.f.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil && sync {
		if err = j.f.Sync(); err != nil {
			j.broken = err // the kernel may have dropped what it could not write, and no later sync would report that
		}
	}
	if err != nil {
		if bad := j.cut(); bad != nil {
			j.broken = bad
		}
		return fmt.Errorf("journal: %w", err)
	}
	j.end += int64(len(lines))
	return nil
}

// Record records c. Call it before making the change; if it fails, the change must not be made. It returns the number
// to pass to Undo.
func (j *Journal) Record(c Change) (int, error) { return j.RecordAll([]Change{c}) }

// RecordAll is Record for several changes at once, which are all on disk when it returns. It returns the number of the
// first change; the others follow consecutively.
func (j *Journal) RecordAll(list []Change) (int, error) {
	entries, err := checked(list)
	if err != nil {
		return 0, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	first := len(j.changes)
	if first+len(list) > maxEntries {
		return 0, fmt.Errorf("journal: more than %d changes", maxEntries)
	}
	// The entry is synced because the change that follows may outlive a crash of the machine. The note that a change
	// was undone needs no sync: undoing it again does nothing.
	if err := j.write(true, entries...); err != nil {
		return 0, err
	}
	j.changes = append(j.changes, list...)
	j.undone = append(j.undone, make([]bool, len(list))...)
	return first, nil
}

// checked returns entries for the changes, or an error if one of them cannot be undone.
func checked(list []Change) ([]entry, error) {
	var entries []entry
	for i := range list {
		k, ok := kinds[list[i].Kind]
		if !ok {
			return nil, fmt.Errorf("journal: no such kind of change: %q", list[i].Kind)
		}
		if err := k.valid(list[i]); err != nil {
			return nil, fmt.Errorf("journal: %s: %w", list[i].Kind, err)
		}
		entries = append(entries, entry{Do: &list[i]})
	}
	return entries, nil
}

// Changes returns the changes that are not undone yet, in their order.
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
	return errors.Join(err, j.note())
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
	j.unnoted = append(j.unnoted, n)
	if c.Kind != "file" && c.Kind != "directory" {
		return did, j.note()
	}
	return did, nil
}

// note notes in the file which changes were undone. Removed names are synced first, because a power cut may restore a
// file, in which case its note must not be on disk. On a full disk the note is skipped: undoing the change again does
// nothing.
func (j *Journal) note() error {
	var entries []entry
	dirs := map[string]bool{}
	for _, n := range j.unnoted {
		entries = append(entries, entry{Undone: &n})
		if c := j.changes[n]; c.Kind == "file" || c.Kind == "directory" {
			dirs[filepath.Dir(c.Args["path"])] = true
		}
	}
	j.unnoted = nil
	for dir := range dirs {
		if err := SyncDir(dir); err != nil && !gone(err) {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if len(entries) > 0 {
		j.write(false, entries...)
	}
	return nil
}

// UndoAll undoes, last first, all changes that are not undone yet, and continues after an error. It returns the changes
// that were still in force and are now gone, and the joined errors.
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
	return did, errors.Join(append(errs, j.note())...)
}

// Settle replaces the changes that match by those of instead. All of it is on disk when Settle returns. If it fails,
// the journal is unchanged; if the disk fails altogether, the next Open may still find the replacement.
func (j *Journal) Settle(match func(Change) bool, instead []Change) error {
	entries, err := checked(instead)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.changes)+len(instead) > maxEntries {
		return fmt.Errorf("journal: more than %d changes", maxEntries)
	}
	// The new ones come first, because a power cut may keep only the beginning of a batch.
	var gone []int
	for n := range j.changes {
		if !j.undone[n] && match(j.changes[n]) {
			gone = append(gone, n)
			entries = append(entries, entry{Undone: &n})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := j.write(true, entries...); err != nil {
		return err
	}
	for _, n := range gone {
		j.undone[n] = true
	}
	j.changes = append(j.changes, instead...)
	j.undone = append(j.undone, make([]bool, len(instead))...)
	return nil
}

// Close closes the file. The journal stays on disk.
func (j *Journal) Close() error { return j.f.Close() }

// gone reports whether err means that there is nothing left to undo.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
