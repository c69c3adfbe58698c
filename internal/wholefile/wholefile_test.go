package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWrite: a file is complete, or unchanged; no other file is left.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	say := func(text string, err error) error {
		return Write(name, func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		})
	}
	if err := say("old", nil); err != nil {
		t.Fatal(err)
	}
	if err := say("half", errors.New("full")); err == nil || err.Error() != "cannot write "+name+": full" {
		t.Errorf("%v", err)
	}
	list, err := os.ReadDir(dir)
	text, rerr := os.ReadFile(name)
	if err != nil || rerr != nil || len(list) != 1 || string(text) != "old" {
		t.Errorf("%v, %v, %d files, %q", err, rerr, len(list), text)
	}
	if fi, err := os.Stat(name); err != nil || fi.Mode() != 0o644 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := Write(filepath.Join(dir, "no/f"), nil); err == nil {
		t.Error("a file in a folder that is not there")
	}
}
