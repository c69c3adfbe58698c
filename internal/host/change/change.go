// Package change makes undoable changes to a host. They are made in transactions: each has a journal in a directory
// of the host (Dir), written before every change. A committed transaction stays in force until Undo; one whose
// process ended before the commit, by kill -9 or a power cut, is undone by the next Recover.
//
// A journal's file is NUMBER-NAME.open until its transaction is committed, then NUMBER-NAME.done. The process that
// works on it holds a lock on it.
package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
)

// Dir is the directory of the host's journals, owned by root.
const Dir = "/var/lib/nearmetal"

var (
	validName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9.:_-]{0,99}$`)
	fileName  = lazyregexp.New(`^([0-9]{6})-([A-Za-z0-9][A-Za-z0-9.:_-]{0,99})\.(open|done)$`)
)

const (
	stateOpen = "open"
	stateDone = "done"
	mostFiles = 100000 // maximum number of journals in a directory
)

// step is called between the steps of a transaction.
var step = func() {}

// OnStep makes every transaction and its undo call f between the steps: tests, of this package and of its users, end
// the process there.
func OnStep(f func()) { step = f }

// Transaction is a set of changes that is made as a whole or not at all. It is for one goroutine.
type Transaction struct {
	dir  string
	name string // of the file
	root string // captured tree, "" for this host
	j    *journal.Journal
	lock *os.File
}

// Begin starts a transaction, called name in List and in Undo's match: letters, digits, '.', ':', '_' and '-'. dir is
// Dir except in tests; it is created if it does not exist.
func Begin(dir, name string) (*Transaction, error) {
	if !validName().MatchString(name) {
		return nil, fmt.Errorf("change: %q cannot name a transaction", name)
	}
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := list(dir)
	if err != nil {
		return nil, err
	}
	n := 1
	for _, i := range list {
		n = max(n, i.Number+1)
	}
	if n > 999999 {
		return nil, fmt.Errorf("change: %s: no numbers left: undo or remove what is there", dir)
	}
	t := &Transaction{dir: dir, name: fmt.Sprintf("%06d-%s.%s", n, name, stateOpen)}
	if t.j, err = journal.Open(filepath.Join(dir, t.name)); err != nil {
		return nil, err
	}
	if t.lock, err = tryLock(filepath.Join(dir, t.name)); err != nil {
		t.j.Close()
		return nil, err
	}
	return t, journal.SyncDir(dir)
}

// Under applies the transaction's values to a captured tree, for tests.
func (t *Transaction) Under(root string) { t.root = root }

// Value is an attribute of the kernel with its new value.
type Value struct {
	Path  string // below /sys or /proc/sys
	Value string // one line, without the newline
}

// WriteError reports an attribute that did not accept its value.
type WriteError struct {
	Value
	Now string // its current value
	Err error  // nil: the kernel accepted the write, but set another value
}

func (e *WriteError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: the kernel made %s of %s", e.Path, e.Now, e.Value.Value)
	}
	return fmt.Sprintf("%s: cannot write %s: %v", e.Path, e.Value.Value, plain(e.Err))
}

func (e *WriteError) Unwrap() error { return e.Err }

// Write sets values of the kernel. The previous values are on disk before the first one is written; attributes that
// already have their value are not written. It tries all, and returns the WriteErrors joined.
func (t *Transaction) Write(values ...Value) error {
	var todo []Value
	var before []journal.Change
	var errs []error
	for _, v := range values {
		now, err := journal.ReadValue(t.path(v.Path))
		switch {
		case err != nil:
			errs = append(errs, &WriteError{Value: v, Err: err})
		case now != v.Value:
			todo = append(todo, v)
			before = append(before, journal.Value(t.root, v.Path, now, false))
		}
	}
	if len(todo) == 0 {
		return errors.Join(errs...)
	}
	step()
	if _, err := t.j.RecordAll(before); err != nil {
		return err
	}
	for _, v := range todo {
		step()
		if err := journal.WriteValue(t.path(v.Path), v.Value); err != nil {
			errs = append(errs, &WriteError{Value: v, Err: err})
		} else if now, err := journal.ReadValue(t.path(v.Path)); err == nil && !same(now, v.Value) {
			errs = append(errs, &WriteError{Value: v, Now: now})
		}
	}
	step()
	return errors.Join(errs...)
}

// same reports whether an attribute reads as it was written: numbers may have lost leading zeroes, lists of CPUs
// blanks.
func same(now, value string) bool {
	a, err1 := strconv.ParseUint(now, 0, 64)
	b, err2 := strconv.ParseUint(value, 0, 64)
	return now == value || err1 == nil && err2 == nil && a == b ||
		strings.TrimLeft(strings.ReplaceAll(now, ",", ""), "0") == strings.TrimLeft(strings.ReplaceAll(value, ",", ""), "0")
}

// Unlock raises a process's limit on locked memory to unlimited.
func (t *Transaction) Unlock(name string, pid int) error {
	c, err := journal.Memlock(name, pid)
	if err == nil {
		_, err = t.j.Record(c)
	}
	if err != nil {
		return fmt.Errorf("process %d (%s): %w", pid, name, err)
	}
	step()
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &all, nil); err != nil {
		return fmt.Errorf("process %d (%s): cannot raise its limit on locked memory: %w", pid, name, err)
	}
	step()
	return nil
}

// Make creates a file with its content, and missing parent directories. It fails if path exists.
func (t *Transaction) Make(path, content string, mode fs.FileMode) error {
	if err := t.announce(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Sync()
	}
	if bad := f.Close(); err == nil {
		err = bad
	}
	step()
	if err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

// Replace atomically replaces the content of a file that an earlier transaction made. The file is removed when the
// transaction that made it is undone.
func (t *Transaction) Replace(path, content string, mode fs.FileMode) error {
	next := path + ".nearmetal-new"
	if err := t.Make(next, content, mode); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

// Last records that a file in sysctl.d or a unit sets a value at each boot from now on, so that the value is also
// undone after a reboot; before is its original value.
func (t *Transaction) Last(path, before string) error {
	_, err := t.j.Record(journal.Value(t.root, path, before, true))
	return err
}

// Link makes a symbolic link at path to target.
func (t *Transaction) Link(target, path string) error {
	if err := t.announce(path); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

// announce records that a file is made at path, where nothing may be yet, and makes the directories above it.
func (t *Transaction) announce(path string) error {
	if err := t.mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already, and not nearmetal's: move it away first", path)
	}
	if _, err := t.j.Record(journal.File(path)); err != nil {
		return err
	}
	step()
	return nil
}

// mkdirs creates a directory and its parents.
func (t *Transaction) mkdirs(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	if err := t.mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := t.j.Record(journal.Directory(path)); err != nil {
		return err
	}
	step()
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

// Record records a change that the caller itself makes right after the call.
func (t *Transaction) Record(c journal.Change) error {
	_, err := t.j.Record(c)
	step()
	return err
}

// Step marks the point between two steps of the caller.
func (t *Transaction) Step() { step() }

// Commit leaves the changes in force until Undo. A transaction without changes leaves no file.
func (t *Transaction) Commit() error {
	defer t.close()
	step()
	from := filepath.Join(t.dir, t.name)
	var err error
	if len(t.j.Changes()) == 0 {
		err = os.Remove(from)
	} else {
		err = os.Rename(from, strings.TrimSuffix(from, stateOpen)+stateDone)
	}
	step()
	if err != nil {
		return err
	}
	return journal.SyncDir(t.dir)
}

// Rollback undoes the changes, last first, and ends the transaction. It returns the changes that it undid. If a
// change cannot be undone the journal stays, for Recover.
func (t *Transaction) Rollback() ([]journal.Change, error) {
	defer t.close()
	did, err := t.j.UndoAll()
	if err != nil {
		return did, err
	}
	if err := os.Remove(filepath.Join(t.dir, t.name)); err != nil {
		return did, err
	}
	return did, journal.SyncDir(t.dir)
}

func (t *Transaction) close() {
	t.j.Close()
	t.lock.Close()
}

func (t *Transaction) path(p string) string { return filepath.Join(t.root, p) }

// plain removes the path from an error that is reported with its path anyway.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Info describes a transaction on disk.
type Info struct {
	Number  int
	Name    string
	Open    bool // not committed: its process is working on it, or was killed
	Changes []journal.Change
	Bad     *BadJournal // not nil: its changes are not known
	file    string
}

// BadJournal reports a journal that cannot be read. It is left unchanged, and does not affect others.
type BadJournal struct {
	Path string
	Err  error
}

func (b *BadJournal) Error() string {
	return fmt.Sprintf("%v: nothing of it is undone: undo by hand what it says, and remove it", b.Err)
}

func (b *BadJournal) Unwrap() error { return b.Err }

// List returns the transactions of a directory, oldest first, with the changes in force. A directory that does not
// exist has none.
func List(dir string) ([]Info, error) {
	infos, err := list(dir)
	if err != nil {
		return nil, err
	}
	for i := range infos {
		j, err := journal.Open(filepath.Join(dir, infos[i].file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			infos[i].Bad = &BadJournal{filepath.Join(dir, infos[i].file), err}
			continue
		}
		infos[i].Changes = j.Changes()
		j.Close()
	}
	return infos, nil
}

func list(dir string) ([]Info, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(mostFiles)
	if err != nil && len(names) > 0 {
		return nil, err
	}
	var infos []Info
	for _, name := range names {
		if m := fileName().FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			infos = append(infos, Info{Number: n, Name: m[2], Open: m[3] == stateOpen, file: name})
		}
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].Number < infos[j].Number })
	return infos, nil
}

// Recover undoes the changes of processes that were killed, last first, and returns them. Call it before other
// changes; it is fast if nothing needs to be undone. An unreadable journal does not stop it or the caller: Check
// lists these.
func Recover(dir string) ([]journal.Change, error) {
	did, errs := undo(dir, func(i Info) bool { return i.Open }, nil)
	var kept []error
	for _, err := range errs {
		var bad *BadJournal
		if !errors.As(err, &bad) {
			kept = append(kept, err)
		}
	}
	return did, errors.Join(kept...)
}

// Check returns the unreadable journals, as BadJournals joined.
func Check(dir string) error {
	infos, err := List(dir)
	errs := []error{err}
	for _, i := range infos {
		if i.Bad != nil {
			errs = append(errs, i.Bad)
		}
	}
	return errors.Join(errs...)
}

// Undo undoes the committed transactions whose names match, last first, after those that Recover would undo. It
// returns the changes that it undid. It continues after an error, and the next call retries the changes that could
// not be undone.
func Undo(dir string, match func(name string) bool) ([]journal.Change, error) {
	return UndoSettled(dir, match, nil)
}

// UndoSettled is Undo for transactions whose old values are not restored, because others changed the same attributes
// later: settle writes the wanted values into each one's journal before anything is undone. It may be called again
// for a transaction whose undo was interrupted.
func UndoSettled(dir string, match func(name string) bool, settle func(*journal.Journal) error) ([]journal.Change, error) {
	did, err := Recover(dir)
	more, bad := undo(dir, func(i Info) bool { return !i.Open && match(i.Name) }, settle)
	return append(did, more...), errors.Join(append(bad, err)...)
}

func undo(dir string, match func(Info) bool, settle func(*journal.Journal) error) ([]journal.Change, []error) {
	infos, err := list(dir)
	if err != nil || len(infos) == 0 {
		return nil, []error{err}
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, []error{err}
	}
	defer unlock()
	if infos, err = list(dir); err != nil { // again, now that no transaction can begin or be committed
		return nil, []error{err}
	}
	var did []journal.Change
	var errs []error
	for n := len(infos) - 1; n >= 0; n-- {
		if !match(infos[n]) {
			continue
		}
		some, err := undoOne(dir, infos[n], settle)
		did = append(did, some...)
		errs = append(errs, err)
	}
	return did, errs
}

func undoOne(dir string, i Info, settle func(*journal.Journal) error) ([]journal.Change, error) {
	path := filepath.Join(dir, i.file)
	lock, err := tryLock(path)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // its process is working on it, or has just committed
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	j, err := journal.Open(path)
	if err != nil {
		return nil, &BadJournal{path, err}
	}
	defer j.Close()
	if settle != nil {
		step()
		if err := settle(j); err != nil {
			return nil, err
		}
		step()
	}
	if !i.Open {
		// If the process is killed from here on, Recover finishes the undo.
		open := strings.TrimSuffix(path, stateDone) + stateOpen
		if err := os.Rename(path, open); err != nil {
			return nil, err
		}
		path = open
	}
	step()
	did, err := j.UndoAll()
	step()
	if err != nil {
		return did, err
	}
	if err := os.Remove(path); err != nil {
		return did, err
	}
	// A journal that reappeared after a power cut would be undone again, over later changes.
	return did, journal.SyncDir(dir)
}
