package change

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/journal"
)

// power tracks which of a host's files are certainly on disk: the names of a directory once that was synced, and the
// bytes of a journal that were synced. At each step it cuts the power: everything not synced survives or not, each
// name independently. Then the host boots, and the kernel's values are the old ones again.
type power struct {
	t           *testing.T
	r           *rand.Rand
	dir, tree   string // directories of the journals and of the host's files
	beside      string // where both are while the power is off
	disk        string // the files that are certainly on disk, by the same paths
	before      string // snapshot of the host's files
	step, cuts  int
	off         bool
	lasting     bool // committed changes must be in force
	stopJournal func()
	stopSync    func()
}

func newPower(t *testing.T, dir, tree string) *power {
	p := &power{t: t, r: rand.New(rand.NewSource(1)), dir: dir, tree: tree, beside: t.TempDir(), disk: t.TempDir(), before: snapshot(t, tree)}
	p.keepAll(tree)
	p.keepAll(filepath.Dir(dir))
	p.stopJournal = journal.OnOpen(func(d journal.Disk) journal.Disk { return &powered{d, p} })
	p.stopSync = journal.OnSyncDir(func(path string) {
		if !p.off {
			p.keep(path)
			p.cut()
		}
	})
	OnStep(p.cut)
	return p
}

func (p *power) stop() {
	p.stopJournal()
	p.stopSync()
	OnStep(func() {})
}

// keepAll treats everything below a directory as being on disk.
func (p *power) keepAll(top string) {
	filepath.Walk(top, func(path string, st os.FileInfo, err error) error {
		if err == nil && st.IsDir() {
			p.keep(path)
		}
		return nil
	})
}

// keep records the names of a directory that was synced. A file's bytes are kept with its name, except a journal's,
// which need its own sync.
func (p *power) keep(path string) {
	to := p.disk + path
	os.MkdirAll(to, 0o755)
	names := map[string]bool{}
	list, _ := os.ReadDir(path)
	for _, e := range list {
		names[e.Name()] = true
		from, at := filepath.Join(path, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir():
			os.MkdirAll(at, 0o755)
		case e.Type() == os.ModeSymlink:
			target, _ := os.Readlink(from)
			os.Symlink(target, at)
		default:
			text, _ := os.ReadFile(from)
			if path == p.dir {
				text, _ = os.ReadFile(p.bytesOf(from))
			}
			os.WriteFile(at, text, 0o644)
		}
	}
	kept, _ := os.ReadDir(to)
	for _, e := range kept {
		if !names[e.Name()] {
			os.RemoveAll(filepath.Join(to, e.Name()))
		}
	}
}

// bytesOf returns where the synced bytes of a journal's file are kept, by its inode, because the file is renamed.
func (p *power) bytesOf(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return filepath.Join(p.beside, "none")
	}
	return filepath.Join(p.beside, fmt.Sprint("bytes-", inode(st)))
}

// powered is the file of a journal.
type powered struct {
	journal.Disk
	p *power
}

func (d *powered) Write(b []byte) (int, error) {
	n, err := d.Disk.Write(b)
	d.p.cut()
	return n, err
}

func (d *powered) Sync() error {
	if d.p.off {
		return d.Disk.Sync()
	}
	for _, path := range d.p.journals(d.p.dir) {
		text, _ := os.ReadFile(path)
		os.WriteFile(d.p.bytesOf(path), text, 0o600)
		if at := d.p.disk + path; exists(at) {
			os.WriteFile(at, text, 0o600)
		}
	}
	d.p.cut()
	return nil
}

func (p *power) journals(dir string) []string {
	list, _ := filepath.Glob(dir + "/*-*.*")
	return list
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// cut cuts the power several times, checks the next boot each time, and restores everything.
func (p *power) cut() {
	if p.off || p.t.Failed() {
		return
	}
	p.step++
	p.off = true
	defer func() { p.off = false }()
	for range 6 {
		p.cuts++
		dir, tree := filepath.Join(p.beside, "dir"), filepath.Join(p.beside, "tree")
		must(p.t, os.Rename(p.dir, dir), os.Rename(p.tree, tree))
		var lost []string
		p.after(tree, p.tree, p.disk+p.tree, &lost)
		p.after(dir, p.dir, p.disk+p.dir, &lost)
		p.boot(tree)
		p.check(fmt.Sprintf("power cut at step %d, on disk otherwise than before: %s", p.step, strings.Join(lost, ", ")))
		must(p.t, os.RemoveAll(p.dir), os.RemoveAll(p.tree))
		must(p.t, os.Rename(dir, p.dir), os.Rename(tree, p.tree))
	}
}

// after creates at path the files that are on disk: some of the names that were changed since the sync (they are in
// now), and all names that were synced and not changed.
func (p *power) after(now, path, disk string, lost *[]string) {
	must(p.t, os.MkdirAll(path, 0o755))
	if path == p.dir {
		must(p.t, os.Chmod(path, 0o700))
	}
	var names []string
	for _, d := range []string{now, disk} {
		list, _ := os.ReadDir(d)
		for _, e := range list {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	old := map[string]bool{} // a synced name whose content has changed; for a journal by its number
	for _, name := range slices.Compact(names) {
		a, b := filepath.Join(now, name), filepath.Join(disk, name)
		from := a
		// A rename reaches the disk atomically.
		of := name
		if path == p.dir {
			of, _, _ = strings.Cut(name, ".")
		}
		if _, ok := old[of]; !ok {
			old[of] = p.r.Intn(2) == 0
		}
		if exists(a) != exists(b) && old[of] {
			from = b
			*lost = append(*lost, name)
		}
		st, err := os.Lstat(from)
		if err != nil {
			continue
		}
		to := filepath.Join(path, name)
		switch {
		case st.IsDir():
			p.after(a, to, b, lost)
		case st.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(from)
			must(p.t, os.Symlink(target, to))
		default:
			text, err := os.ReadFile(from)
			if path == p.dir && from == a && name != "lock" {
				text = p.torn(text, p.bytesOf(a))
			}
			must(p.t, err, os.WriteFile(to, text, st.Mode().Perm()))
		}
	}
}

// torn returns the bytes of a journal on disk: the synced ones, and of the rest a prefix, or zeroes.
func (p *power) torn(text []byte, synced string) []byte {
	sure, _ := os.ReadFile(synced)
	n := len(sure) + p.r.Intn(max(len(text)-len(sure), 0)+1)
	b := slices.Clone(text[:min(n, len(text))])
	if p.r.Intn(2) == 0 && len(b) > len(sure) {
		clear(b[len(sure):])
	}
	return b
}

// boot restores the kernel's values.
func (p *power) boot(was string) {
	for _, v := range values {
		text, err := os.ReadFile(filepath.Join(p.disk, p.tree, v.Path))
		must(p.t, err, os.WriteFile(filepath.Join(p.tree, v.Path), text, 0o644))
	}
}

// check runs Recover as the next command does, and Undo for the committed changes: the host must then be restored.
func (p *power) check(what string) {
	if _, err := Recover(p.dir); err != nil {
		p.t.Errorf("%s: %v", what, err)
	}
	if p.lasting {
		if infos, _ := List(p.dir); len(infos) != 1 || infos[0].Open || !exists(p.tree+"/etc/new/sysctl.d/90-nearmetal.conf") || !exists(p.tree+"/etc/new/link") {
			p.t.Errorf("%s: what was committed is lost: %+v\n%s", what, infos, snapshot(p.t, p.tree))
		}
	}
	if _, err := Undo(p.dir, func(string) bool { return true }); err != nil {
		p.t.Errorf("%s: undoing: %v", what, err)
	}
	if got := snapshot(p.t, p.tree); got != p.before {
		p.t.Errorf("%s:\n%s\nwant\n%s", what, got, p.before)
	}
	if list, err := List(p.dir); len(list) != 0 || err != nil {
		p.t.Errorf("%s: left %v, %v", what, list, err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPowerCut: if the power is cut at any time while changes are made, committed or undone, and in whichever order
// names and bytes reached the disk, after the next boot the host is restored, or the committed changes are in force
// and can be undone.
func TestPowerCut(t *testing.T) {
	tree, dir := newTree(t), filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	p := newPower(t, dir, tree)
	defer p.stop()
	must(t, makeChanges(dir, tree))
	p.lasting = true
	p.cut()
	p.lasting = false
	_, err := Undo(dir, func(string) bool { return true })
	must(t, err)
	p.cut()
	if p.step < 25 || p.cuts < 150 {
		t.Errorf("%d steps, %d power cuts", p.step, p.cuts)
	}
}

func inode(st os.FileInfo) uint64 { return st.Sys().(*syscall.Stat_t).Ino }
