package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// disk is a file whose bytes reach the disk when they are synced, or otherwise in any order, block by block. Its
// operation number fail fails.
type disk struct {
	cached, durable []byte
	at              int
	ops, fail       int
	how             fault
	cutFails        bool
}

// fault is the way in which an operation fails.
type fault int

const (
	full       fault = iota // ENOSPC, nothing written
	shortWrite              // ENOSPC after a part
	broken                  // EIO, the whole written
)

const block = 32 // bytes

func (d *disk) failing() bool {
	d.ops++
	return d.ops == d.fail
}

func (d *disk) Read(p []byte) (int, error) {
	if d.at >= len(d.cached) {
		return 0, io.EOF
	}
	n := copy(p, d.cached[d.at:])
	d.at += n
	return n, nil
}

func (d *disk) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if d.failing() {
		switch d.how {
		case full:
			n, err = 0, unix.ENOSPC
		case shortWrite:
			n, err = len(p)*2/3, unix.ENOSPC
		default:
			err = unix.EIO
		}
	}
	d.cached = append(d.cached[:d.at:d.at], p[:n]...)
	d.at += n
	return n, err
}

func (d *disk) Sync() error {
	if d.failing() {
		return unix.EIO
	}
	d.durable = append([]byte(nil), d.cached...)
	return nil
}

func (d *disk) Truncate(size int64) error {
	if d.cutFails && d.ops >= d.fail && d.fail > 0 {
		return unix.EIO
	}
	d.cached = d.cached[:size]
	return nil
}

func (d *disk) Seek(off int64, _ int) (int64, error) { d.at = int(off); return off, nil }
func (d *disk) Close() error                         { return nil }

// powerCut returns the content of the disk after a power cut. Of the unsynced blocks some are written and the others
// are zero; the file ends with the last of them, or earlier.
func (d *disk) powerCut(r *rand.Rand) []byte {
	b := append([]byte(nil), d.durable...)
	if len(d.cached) < len(b) && r.Intn(2) == 0 {
		b = b[:len(d.cached)]
	}
	size := len(b)
	if len(d.cached) > size {
		size += r.Intn(len(d.cached) - size + 1)
	}
	for len(b) < size {
		b = append(b, 0)
	}
	for from := len(d.durable) / block * block; from < size; from += block {
		if r.Intn(2) == 0 {
			copy(b[max(from, min(len(d.durable), size)):min(from+block, size)], d.cached[max(from, min(len(d.durable), size)):])
		}
	}
	return b
}

// onDisk opens a journal on d.
func onDisk(t *testing.T, d *disk) *Journal {
	t.Helper()
	d.at = 0
	stop := OnOpen(func(f Disk) Disk { f.Close(); return d })
	defer stop()
	j, err := Open(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatalf("%v\n%q", err, d.cached)
	}
	return j
}

func paths(list []Change) string {
	var s []string
	for _, c := range list {
		s = append(s, filepath.Base(c.Args["path"]))
	}
	return strings.Join(s, " ")
}

// work records changes, undoes some and settles others. must are the changes that have to be undone in the end, because
// Record reported them as written; may are those that can also be there: failed ones, and undone ones.
func work(t *testing.T, j *Journal) (must, may map[string]bool) {
	t.Helper()
	must, may = map[string]bool{}, map[string]bool{}
	there := filepath.Join(t.TempDir(), "none")
	file := func(n int) Change { return File(fmt.Sprintf("%s-%d", there, n)) }
	key := func(c Change) string { return filepath.Base(c.Args["path"]) }
	record := func(list ...Change) (int, bool) {
		n, err := j.RecordAll(list)
		for _, c := range list {
			may[key(c)] = true
			must[key(c)] = err == nil
		}
		return n, err == nil
	}
	undo := func(n int, c Change) {
		if err := j.Undo(n); err != nil {
			t.Errorf("undoing %s: %v", key(c), err)
		}
		must[key(c)] = false
	}
	if n, ok := record(file(0)); ok {
		undo(n, file(0))
	}
	record(file(1), file(2), file(3), file(4), file(5))
	if n, ok := record(file(6)); ok {
		undo(n, file(6))
	}
	settled := func(c Change) bool { return key(c) == "none-2" || key(c) == "none-4" }
	err := j.Settle(settled, []Change{file(7), file(8)})
	for _, k := range []string{"none-2", "none-4"} {
		must[k] = must[k] && err != nil
	}
	for _, k := range []string{"none-7", "none-8"} {
		may[k], must[k] = true, err == nil
	}
	record(file(9))
	return must, may
}

func check(t *testing.T, what string, j *Journal, must, may map[string]bool) {
	t.Helper()
	have := map[string]bool{}
	for _, c := range j.Changes() {
		k := filepath.Base(c.Args["path"])
		have[k] = true
		if !may[k] {
			t.Errorf("%s: %s is to be undone, which was never made", what, k)
		}
	}
	for k, m := range must {
		// A settling that was cut short may have reached the disk completely.
		settled := (k == "none-2" || k == "none-4") && have["none-7"] && have["none-8"]
		if m && !have[k] && !settled {
			t.Errorf("%s: %s is forgotten (left: %s)", what, k, paths(j.Changes()))
		}
	}
}

// Regardless of which operation of the disk fails, and how, the journal that is opened next contains every change that
// was reported as written and not undone, and no change that nobody wrote.
func TestDiskFails(t *testing.T) {
	for _, how := range []fault{full, shortWrite, broken} {
		for _, cutFails := range []bool{false, true} {
			for n := 1; ; n++ {
				d := &disk{fail: n, how: how, cutFails: cutFails}
				must, may := work(t, onDisk(t, d))
				if d.ops < n {
					break
				}
				what := fmt.Sprintf("fault %d at operation %d, cut fails %v", how, n, cutFails)
				d.fail = 0
				j := onDisk(t, d)
				check(t, what, j, must, may)
				if _, err := j.Record(File("/after/it")); err != nil {
					t.Errorf("%s: then %v", what, err)
				}
				if got := paths(onDisk(t, d).Changes()); !strings.HasSuffix(got, "it") {
					t.Errorf("%s: then %s", what, got)
				}
			}
		}
	}
}

// The same for a power cut at any operation, after which any of the unsynced blocks may be written.
func TestPowerCut(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for n := 0; n < 24; n++ {
		d := &disk{}
		// The power is cut before operation n: that one and all later ones have no effect.
		c := &cutDisk{disk: d, left: n}
		stop := OnOpen(func(f Disk) Disk { f.Close(); return c })
		j, err := Open(filepath.Join(t.TempDir(), "journal"))
		stop()
		if err != nil {
			t.Fatal(err)
		}
		must, may := work(t, j)
		for k := range 25 {
			after := &disk{cached: d.powerCut(r)}
			after.durable = after.cached
			check(t, fmt.Sprintf("power cut at operation %d, the %dth", n, k), onDisk(t, after), must, may)
			if t.Failed() {
				t.Fatalf("%q", after.cached)
			}
		}
	}
}

var errPower = errors.New("no power")

// cutDisk ignores all operations once its power is cut.
type cutDisk struct {
	*disk
	left int
}

func (c *cutDisk) dead() bool { c.left--; return c.left < 0 }

func (c *cutDisk) Write(p []byte) (int, error) {
	if c.dead() {
		return 0, errPower
	}
	return c.disk.Write(p)
}

func (c *cutDisk) Sync() error {
	if c.dead() {
		return errPower
	}
	return c.disk.Sync()
}

func (c *cutDisk) Truncate(n int64) error {
	if c.left < 0 {
		return errPower
	}
	return c.disk.Truncate(n)
}

// noted is the file of a journal that reports when the undoing of a change is noted.
type noted struct {
	Disk
	say func(string)
}

func (n noted) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("undone")) {
		n.say("note")
	}
	return n.Disk.Write(b)
}

// The removal of a file is noted once its name is gone from the disk, because a power cut before that may restore it.
func TestNamesBeforeNotes(t *testing.T) {
	dir, made := t.TempDir(), t.TempDir()
	var order []string
	say := func(what string) { order = append(order, what) }
	defer OnOpen(func(d Disk) Disk { return noted{d, say} })()
	j := open(t, filepath.Join(dir, "journal"))
	for _, name := range []string{"a", "b"} {
		record(t, j, File(filepath.Join(made, name)))
		if err := os.WriteFile(filepath.Join(made, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer OnSyncDir(func(path string) {
		if path == made {
			say("names")
		}
	})()
	if err := j.Undo(1); err != nil {
		t.Error(err)
	}
	if _, err := j.UndoAll(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(order, " "); got != "names note names note" {
		t.Error(got)
	}
}

// On a full file system an incomplete entry is cut off again, and the journal continues once there is room.
func TestFullFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a tmpfs")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no tmpfs can be mounted here: ", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	record(t, j, File("/no/such/first"))
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1024))
	}
	f.Close()
	var fits []string
	long := strings.Repeat("x", 100)
	failed := false
	for i := range 200 {
		name := fmt.Sprintf("/no/such/%d-%s", i, long)
		if _, err := j.Record(File(name)); err == nil {
			fits = append(fits, name)
		} else if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		} else {
			failed = true
			break
		}
	}
	if !failed {
		t.Fatal("a full file system took all")
	}
	again := open(t, path)
	if n := len(again.Changes()); n != 1+len(fits) {
		t.Errorf("%d changes, want %d", n, 1+len(fits))
	}
	if _, err := j.UndoAll(); err != nil {
		t.Error("a full file system keeps changes from being undone: ", err)
	}
	os.Remove(filler)
	record(t, open(t, path), File("/no/such/last"))
	if got := open(t, path).Changes(); !strings.HasSuffix(paths(got), "last") {
		t.Errorf("%v", got)
	}
}

// FuzzReplay opens a journal written in two sessions with arbitrary bytes between them, as by several processes of one
// host.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte(`{"do":{"ki`), uint8(200))
	f.Add(make([]byte, 64), uint8(0))
	f.Add([]byte(`{"undone":0}`+"\n"), uint8(9))
	dir, err := os.MkdirTemp("/dev/shm", "nearmetal-fuzz") // syncing a disk would dominate the time
	if err != nil {
		dir = f.TempDir()
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	f.Fuzz(func(t *testing.T, between []byte, cut uint8) {
		path := filepath.Join(dir, "journal")
		os.Remove(path)
		j, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		j.RecordAll([]Change{File("/a"), File("/b")})
		j.Close()
		whole, _ := os.ReadFile(path)
		text := append(whole[:max(0, len(whole)-int(cut))], between...)
		os.WriteFile(path, text, 0o600)
		if j, err = Open(path); err != nil {
			return
		}
		before := len(j.Changes())
		if _, err := j.Record(File("/c")); err != nil {
			t.Fatal(err)
		}
		j.Close()
		j, err = Open(path)
		if err != nil {
			t.Fatalf("what it wrote itself it does not read: %v\n%q", err, text)
		}
		if n := len(j.Changes()); n != before+1 {
			t.Errorf("%d changes, then %d", before, n)
		}
		j.Close()
	})
}
