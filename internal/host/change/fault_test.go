package change

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/journal/faultdisk"
)

// TestDiskFails: if any write of a journal fails, while changes are made or undone, the host is restored, at the
// latest by the next command.
func TestDiskFails(t *testing.T) {
	for n := 1; ; n++ {
		tree, dir := newTree(t), filepath.Join(t.TempDir(), "state")
		before := snapshot(t, tree)
		stop := faultdisk.FailAt(n)
		err := makeChanges(dir, tree)
		if !stop() {
			break
		}
		if err == nil {
			t.Errorf("operation %d failed, and the changes were made", n)
		}
		if _, err := Recover(dir); err != nil {
			t.Errorf("after operation %d: %v", n, err)
		}
		if got := snapshot(t, tree); got != before {
			t.Errorf("after operation %d:\n%s\nwant\n%s", n, got, before)
		}
	}
	for n := 1; ; n++ {
		tree, dir := newTree(t), filepath.Join(t.TempDir(), "state")
		before := snapshot(t, tree)
		if err := makeChanges(dir, tree); err != nil {
			t.Fatal(err)
		}
		stop := faultdisk.FailAt(n)
		_, err := Undo(dir, func(string) bool { return true })
		hit := stop()
		if err != nil {
			t.Errorf("operation %d failed, and with it the undoing: %v", n, err)
		}
		if got := snapshot(t, tree); got != before {
			t.Errorf("undone with operation %d failing:\n%s\nwant\n%s", n, got, before)
		}
		if list, err := List(dir); len(list) != 0 || err != nil {
			t.Errorf("operation %d: left %v, %v", n, list, err)
		}
		if !hit {
			break
		}
	}
}

// TestBadJournal: an unreadable journal, of an open or a committed transaction, is reported, and does not affect
// others.
func TestBadJournal(t *testing.T) {
	for _, state := range []string{stateOpen, stateDone} {
		tree, dir := newTree(t), filepath.Join(t.TempDir(), "state")
		before := snapshot(t, tree)
		if err := makeChanges(dir, tree); err != nil {
			t.Fatal(err)
		}
		bad := filepath.Join(dir, "000009-fix."+state)
		if err := os.WriteFile(bad, []byte("what is this?\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Recover(dir); err != nil {
			t.Error(err)
		}
		infos, err := List(dir)
		if err != nil || len(infos) != 2 || infos[0].Bad != nil || len(infos[0].Changes) == 0 || infos[1].Bad == nil {
			t.Errorf("%+v, %v", infos, err)
		}
		var said *BadJournal
		if err := Check(dir); !errors.As(err, &said) || said.Path != bad || !strings.Contains(err.Error(), bad) {
			t.Error(err)
		}
		tx, err := Begin(dir, "other")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		// It is reported if it is among the requested ones.
		if _, err := Undo(dir, func(string) bool { return true }); (err != nil) != (state == stateDone) {
			t.Error(err)
		}
		if got := snapshot(t, tree); got != before {
			t.Errorf("%s\nwant\n%s", got, before)
		}
		if _, err := os.Stat(bad); err != nil {
			t.Error("it was removed: ", err)
		}
	}
}

// FuzzRecover has a good journal among others with arbitrary contents.
func FuzzRecover(f *testing.F) {
	f.Add([]byte("x\n"), "000001-a.open")
	f.Add([]byte(`{"do":{"kind":"unknown","args":{}}}`+"\n"), "000009-a.done")
	f.Add(make([]byte, 100), "000005-fix.open")
	f.Add([]byte(`{"undone":-1}`+"\n"), "000005-fix.done")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		if !fileName().MatchString(name) || strings.Contains(string(text), `"do"`) && !strings.Contains(string(text), "unknown") {
			t.Skip() // not undone here, because the fuzzer could name a real file
		}
		dir := t.TempDir()
		os.Chmod(dir, 0o700)
		path := filepath.Join(dir, "made")
		tx, err := Begin(dir, "good")
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Make(path, "x", 0o600); err != nil {
			t.Fatal(err)
		}
		tx.close() // as if the process were killed
		if name == "000001-good.open" {
			t.Skip()
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		Recover(dir)
		if _, err := os.Lstat(path); err == nil {
			t.Error("another journal kept this one from being undone")
		}
		if infos, err := List(dir); err != nil {
			t.Error(fmt.Sprint(infos), err)
		}
	})
}
