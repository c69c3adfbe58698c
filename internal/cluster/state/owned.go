package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"nearmetal/internal/backend"
	"nearmetal/internal/journal"
	"nearmetal/internal/spec"
)

// Owned is a cluster that this process owns: its directory, its lock, its journal and its record. All methods may be
// called from several goroutines.
type Owned struct {
	// Journal has the changes that are undone at the end of the cluster.
	Journal *journal.Journal

	lock *os.File

	mu      sync.Mutex // protects the fields below
	dir     string     // "": it is removed, or there is none
	rec     Record
	changed chan struct{} // closed and replaced when rec changes
}

// Create creates the directory of the cluster that rec names, acquires its lock, opens its journal and writes rec. It
// first removes what a dead cluster of that name left. It fails if a cluster of that name runs.
func Create(rec Record) (*Owned, error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	if err := spec.CheckName(rec.Name); err != nil {
		return nil, err
	}
	dir, l, err := create(base, rec.Name)
	if err != nil {
		return nil, err
	}
	o := &Owned{lock: l, dir: dir, rec: rec}
	if o.Journal, err = journal.Open(filepath.Join(dir, journalFile)); err == nil {
		err = o.Write(nil)
	}
	if err != nil {
		return nil, errors.Join(err, o.Remove())
	}
	return o, nil
}

// InMemory returns a cluster with the record rec that has no directory, lock or journal, for tests.
func InMemory(rec Record) *Owned { return &Owned{rec: rec} }

// Name returns the name of the cluster.
func (o *Owned) Name() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rec.Name
}

// Record returns a copy of the record.
func (o *Owned) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.copy()
}

// copy returns a copy of the record. The caller holds o.mu. Parts that are not copied are only ever replaced as a
// whole.
func (o *Owned) copy() Record {
	r := o.rec
	r.VMs = slices.Clone(r.VMs)
	return r
}

// Path returns the path of a file of the cluster.
func (o *Owned) Path(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return filepath.Join(o.dir, name)
}

// Write changes the record by f (nil: no change) and writes it to the cluster's directory. f must not call o.
func (o *Owned) Write(f func(*Record)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f != nil {
		f(&o.rec)
		o.tell()
	}
	if o.dir == "" {
		return nil // the cluster has ended
	}
	return o.rec.write(o.dir)
}

// WriteVM changes the record of VM number i by f and writes it.
func (o *Owned) WriteVM(i int, f func(*VMRecord)) {
	o.Write(func(r *Record) { f(&r.VMs[i]) })
}

// Note changes the record by f in memory only; the next Write stores it on disk. f returns whether it has changed
// anything, and Note returns the same.
func (o *Owned) Note(f func(*Record) bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !f(&o.rec) {
		return false
	}
	o.tell()
	return true
}

// tell wakes the goroutines that wait for a change. The caller holds o.mu.
func (o *Owned) tell() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// Await waits until f returns true for the record, and returns that record. If ctx ends first, it returns the last
// record and the cause.
func (o *Owned) Await(ctx context.Context, f func(*Record) bool) (Record, error) {
	for {
		o.mu.Lock()
		r := o.copy()
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		if f(&r) {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// Ref records what a backend is about to create; see backend.Request.
func (o *Owned) Ref(r backend.Ref) error {
	_, err := o.Journal.Record(refChange(r))
	return err
}

// LockBase waits for the lock under which the user's clusters are planned, created and swept. The caller closes it.
func (o *Owned) LockBase() (*os.File, error) { return lockBase(filepath.Dir(o.Path(""))) }

// Rename changes the name of a ready cluster: it moves the directory and updates the record. Nothing in a VM depends
// on the name, and open connections remain. Paths into the old directory, which nearmetal env has printed, no longer
// exist afterwards.
func (o *Owned) Rename(name string) error {
	if err := spec.CheckName(name); err != nil {
		return err
	}
	base, err := Base()
	if err != nil {
		return err
	}
	b, err := lockBase(base) // so that no other cluster can use the name
	if err != nil {
		return err
	}
	defer b.Close()
	to := filepath.Join(base, name)
	if _, err := sweepOne(to, name); err != nil {
		return err
	}
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a cluster called %q runs already: take another name", name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dir == "" || o.rec.State != Ready {
		return errors.New("the cluster is not ready")
	}
	from := o.dir
	if err := os.Rename(from, to); err != nil {
		return err
	}
	old := o.rec
	s, p := *old.Spec, *old.Plan // copies of the record share them
	s.Name, p.Cluster = name, name
	o.dir, o.rec.Name, o.rec.Spec, o.rec.Plan = to, name, &s, &p
	if err := o.rec.write(to); err != nil {
		o.dir, o.rec = from, old
		return errors.Join(err, os.Rename(to, from))
	}
	o.tell()
	return nil
}

// Undo undoes the changes in the journal, and closes it.
func (o *Owned) Undo() error {
	if o.Journal == nil {
		return nil
	}
	_, err := o.Journal.UndoAll()
	o.Journal.Close()
	return err
}

// forget stops writing the record to disk: later changes remain in memory. It returns the cluster's directory.
func (o *Owned) forget() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	dir := o.dir
	o.dir = ""
	return dir
}

// Remove removes the cluster's directory and releases its lock when the cluster has ended.
func (o *Owned) Remove() error {
	err := os.RemoveAll(o.forget())
	o.lock.Close()
	return err
}

// Leave releases the lock and keeps the directory, with a journal that could not be undone, for the next Sweep.
func (o *Owned) Leave() {
	o.forget()
	o.lock.Close()
}
