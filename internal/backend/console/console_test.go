package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestConsoleFlood(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c, err := New(log)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() { c.Read(r); close(done) }()
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 1000)
	most := int64(0)
	for i := 0; i < 1000; i++ { // 16 MB
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(log); err == nil {
			most = max(most, st.Size())
		}
	}
	io.WriteString(w, "the end\n")
	w.Close()
	<-done
	if most > LogMax || most < LogMax/2 {
		t.Errorf("the log had up to %d bytes", most)
	}
	if cap(c.text) > 8*ring {
		t.Errorf("%d bytes in memory", cap(c.text))
	}
	b, err := os.ReadFile(log)
	if err != nil || !bytes.HasSuffix(b, []byte("the end\n")) || !bytes.HasPrefix(b, []byte("[nearmetal: ")) {
		t.Errorf("log: %q … %q, %v", b[:40], b[len(b)-40:], err)
	}
	if got := c.LastLines(2); len(got) != 2 || got[1] != "the end" || got[0] != "0123456789abcde" {
		t.Errorf("last lines %q", got)
	}
	if st, err := os.Stat(log); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestConsoleLogLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	os.WriteFile(victim, []byte("precious"), 0o600)
	link := filepath.Join(dir, "log")
	os.Symlink(victim, link)
	if _, err := New(link); err == nil {
		t.Error("a symbolic link was followed")
	}
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Error("it was overwritten")
	}
}

func TestConsoleAwait(t *testing.T) {
	c, _ := New("")
	r, w := io.Pipe()
	go c.Read(r)
	go func() {
		io.WriteString(w, "half a li")
		io.WriteString(w, "ne, and more\n")
		w.Close()
	}()
	if err := c.Await(context.Background(), "a line"); err != nil {
		t.Error(err)
	}
	if err := c.Await(context.Background(), "never"); !errors.Is(err, errConsoleEnd) {
		t.Errorf("%v", err)
	}
	open, _ := New("")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := open.Await(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestLastLines(t *testing.T) {
	c, _ := New("")
	c.add([]byte("one\r\n\r\n\x1b[2J\x1b[31mtwo\x1b[0m\x07\r\n" + strings.Repeat("long ", 200) + "\nbad\xff \u202eutf\n"))
	want := []string{"one", `two\a`, strings.Repeat("long ", 80) + "…", `bad\xff \u202eutf`}
	if got := c.LastLines(9); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := c.LastLines(1); len(got) != 1 || got[0] != want[3] {
		t.Errorf("%q", got)
	}
}

func FuzzHarmless(f *testing.F) {
	for _, s := range []string{"", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\xff\xfe", "a\tb\r\n", "\x1b[" + strings.Repeat("1;", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := Harmless(s, lineMax)
		if !utf8.ValidString(h) || utf8.RuneCountInString(h) > 12*lineMax {
			t.Fatalf("%q", h)
		}
		for _, r := range h {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q has %q", h, r)
			}
		}
	})
}
