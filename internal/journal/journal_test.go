package journal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func record(t *testing.T, j *Journal, c Change) int {
	t.Helper()
	n, err := j.Record(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The next process that opens the file undoes what the previous one recorded and did not undo.
func TestUndoAfterCrash(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	a, b, never := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "never")

	j := open(t, path)
	na := record(t, j, File(a))
	os.WriteFile(a, nil, 0o600)
	record(t, j, File(b))
	os.WriteFile(b, nil, 0o600)
	record(t, j, File(never)) // recorded, but the crash preceded the change
	if err := j.Undo(na); err != nil {
		t.Fatal(err)
	}
	j.Close()

	did, err := open(t, path).UndoAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(did) != 1 || did[0].Args["path"] != b {
		t.Errorf("undone: %v, want only %s", did, b)
	}
	if _, err := os.Stat(b); err == nil {
		t.Errorf("%s is still there", b)
	}
	if did, err := open(t, path).UndoAll(); len(did) != 0 || err != nil {
		t.Errorf("a second time: %v, %v; want nothing", did, err)
	}
}

func TestUndoIsLastFirst(t *testing.T) {
	dir := t.TempDir()
	j := open(t, filepath.Join(dir, "journal"))
	for _, n := range []string{"1", "2", "3"} {
		p := filepath.Join(dir, n)
		record(t, j, File(p))
		os.WriteFile(p, nil, 0o600)
	}
	did, err := j.UndoAll()
	var got string
	for _, c := range did {
		got += filepath.Base(c.Args["path"])
	}
	if err != nil || got != "321" {
		t.Errorf("order %q, %v; want 321", got, err)
	}
}

func TestProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	c, err := Process("sleep", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := c
	other.Args = map[string]string{"name": "sleep", "pid": c.Args["pid"], "start": "1"}
	dir := t.TempDir()
	j := open(t, filepath.Join(dir, "journal"))
	n := record(t, j, other)
	if err := j.Undo(n); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
		t.Fatal("a process with another start time was killed")
	}
	n = record(t, j, c)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := j.Undo(n); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
}

func TestBadJournals(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":     "hello\n",
		"empty object": "{}\n",
		"undone first": `{"undone":0}` + "\n",
		"long line":    `{"do":{"kind":"` + strings.Repeat("x", maxLine) + `"}}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "journal")
		os.WriteFile(path, []byte(text), 0o600)
		if j, err := Open(path); err == nil {
			j.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// A line truncated by a crash is dropped, and the journal can still be appended to.
func TestCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	os.WriteFile(path, []byte(`{"do":{"kind":"file","args":{"path":"/a"}}}`+"\n"+`{"do":{"ki`), 0o600)
	j := open(t, path)
	if len(j.changes) != 1 {
		t.Fatalf("%d changes, want 1", len(j.changes))
	}
	record(t, j, File("/nonexistent/b"))
	j.Close()
	if j := open(t, path); len(j.changes) != 2 {
		t.Errorf("%d changes, want 2", len(j.changes))
	}
}

func TestRecordRefuses(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "journal"))
	for _, c := range []Change{
		{Kind: "format-disk"},
		File("relative"), File("/a/../b"),
		Link("eth0"), Link("nm-0123456789abcdef"), Link("nm-/x"),
		{Kind: "process", Args: map[string]string{"pid": "1", "start": "1"}},
	} {
		if _, err := j.Record(c); err == nil {
			t.Errorf("%v was taken", c)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"do":{"kind":"none","args":{"path":"/a"}}}` + "\n" + `{"undone":0}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "journal")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if j, err := Open(path); err == nil {
			j.Close() // never undone here, because the fuzzer could name a real file
		}
	})
}

// A journal whose torn end cannot be cut off is rejected, because the next entry would follow that end. /dev/null is
// read as empty and cannot be truncated.
func TestOpenThatCannotCut(t *testing.T) {
	if j, err := Open("/dev/null"); err == nil {
		j.Close()
		t.Error("opened, though it could not be truncated")
	}
}
