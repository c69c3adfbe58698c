package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPrefixer(t *testing.T) {
	var out bytes.Buffer
	p := NewPrefixer(&out, []string{"vm0", "vm1"}, false)
	a, b := p.Writer("vm0"), p.Writer("vm1")
	for _, w := range []struct {
		to   io.Writer
		text string
	}{
		{a, "one\ntw"}, {b, "eins\n\nzw"}, {a, "o"}, {a, "\n"}, {b, ""}, {a, "three"}, {b, "ei"},
	} {
		if n, err := io.WriteString(w.to, w.text); n != len(w.text) || err != nil {
			t.Fatal(n, err)
		}
	}
	a.Close()
	b.Close()
	b.Close()
	want := "vm0: one\nvm1: eins\nvm1: \nvm0: two\nvm0: three\nvm1: zwei\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestPrefixColours(t *testing.T) {
	var out bytes.Buffer
	var names []string
	for i := 0; i < 12; i++ {
		names = append(names, fmt.Sprint("vm", i))
	}
	p := NewPrefixer(&out, names, true)
	for _, name := range []string{"vm0", "vm1", "vm10", "stranger\x1b"} {
		fmt.Fprintln(p.Writer(name), "x")
	}
	want := "\x1b[36mvm0:\x1b[0m x\n\x1b[33mvm1:\x1b[0m x\n\x1b[36mvm10:\x1b[0m x\nstranger?: x\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// A line is one line with one prefix, regardless of its length, and memory is bounded.
func TestLongLines(t *testing.T) {
	for _, size := range []int{1, 999, maxLine - 1, maxLine, maxLine + 1, 3*maxLine + 5} {
		var out bytes.Buffer
		w := NewPrefixer(&out, nil, false).Writer("v").(*prefixWriter)
		want := ""
		for _, n := range []int{3*maxLine + 5, 5, maxLine, maxLine + 1, 0, 2 * maxLine} {
			want += "v: " + strings.Repeat("x", n) + "\n"
		}
		text := strings.ReplaceAll(want, "v: ", "")
		for i := 0; i < len(text); i += size {
			io.WriteString(w, text[i:min(i+size, len(text))])
			if len(w.rest) > maxLine || cap(w.rest) > 2*maxLine {
				t.Fatalf("%d bytes are kept", cap(w.rest))
			}
		}
		if out.String() != want {
			t.Errorf("in writes of %d bytes: %d bytes, want %d", size, out.Len(), len(want))
		}
	}
}

// While a VM writes a long line, others wait for its end.
func TestLongLineIsOne(t *testing.T) {
	var out bytes.Buffer
	p := NewPrefixer(&out, nil, false)
	a, b := p.Writer("a"), p.Writer("b")
	most := strings.Repeat("x", maxLine+1)
	io.WriteString(a, most)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		io.WriteString(b, "other\n")
	}()
	io.WriteString(a, most)
	io.WriteString(a, "\n")
	wg.Wait()
	io.WriteString(b, most)
	b.Close() // a line without an end
	io.WriteString(a, "last\n")
	if want := "a: " + most + most + "\nb: other\nb: " + most + "\na: last\n"; out.String() != want {
		t.Errorf("%d bytes, want %d: %.10q", out.Len(), len(want), strings.ReplaceAll(out.String(), "x", ""))
	}
}

// A VM whose long line does not end does not make others wait for ever, and loses no byte.
func TestLongLineIsBroken(t *testing.T) {
	defer func(d time.Duration) { holdBound = d }(holdBound)
	holdBound = 0
	var out bytes.Buffer
	p := NewPrefixer(&out, nil, false)
	a, b := p.Writer("a"), p.Writer("b")
	most := strings.Repeat("x", maxLine+1)
	io.WriteString(a, most)
	io.WriteString(b, "other\n")
	for _, text := range []string{"y", most, "z\nnext", "\n"} {
		io.WriteString(a, text)
	}
	want := "a: " + most + "\nb: other\na: y" + most[2:] + "\na: xxz\na: next\n"
	if out.String() != want {
		t.Errorf("%d bytes, want %d: %.80q", out.Len(), len(want), strings.ReplaceAll(out.String(), "xxx", ""))
	}
	// Other VMs do not wait for a VM whose output cannot be written either.
	p = NewPrefixer(failing{}, nil, false)
	a, b = p.Writer("a"), p.Writer("b")
	holdBound = time.Hour
	io.WriteString(a, most)
	io.WriteString(b, "other\n")
}

// lineChecker fails on a write that is not whole lines of one VM each.
type lineChecker struct {
	t     *testing.T
	lines map[string]int
}

func (c *lineChecker) Write(p []byte) (int, error) {
	for _, line := range strings.SplitAfter(string(p), "\n") {
		if line == "" {
			continue
		}
		name, text, _ := strings.Cut(line, ": ")
		if text != name+" says hello to "+name+"\n" {
			c.t.Errorf("mixed line %q", line)
		}
		c.lines[name]++
	}
	return len(p), nil
}

func TestPrefixerOfManyGoroutines(t *testing.T) {
	check := &lineChecker{t, map[string]int{}}
	p := NewPrefixer(check, nil, false)
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func(name string) {
			defer wg.Done()
			w := p.Writer(name)
			defer w.Close()
			text := strings.Repeat(name+" says hello to "+name+"\n", 50)
			for i := 0; i < len(text); i += 7 {
				io.WriteString(w, text[i:min(i+7, len(text))])
			}
		}(fmt.Sprint("vm", i))
	}
	wg.Wait()
	for name, n := range check.lines {
		if n != 50 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
	if len(check.lines) != 8 {
		t.Errorf("%v", check.lines)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestPrefixerErrorStays(t *testing.T) {
	w := NewPrefixer(failing{}, nil, false).Writer("v")
	if n, err := io.WriteString(w, "x"); n != 1 || err != nil {
		t.Error(n, err)
	}
	for i := 0; i < 2; i++ {
		if _, err := io.WriteString(w, "y\n"); err == nil {
			t.Error("no error")
		}
	}
	if w.Close() == nil {
		t.Error("no error on closing")
	}
}

func FuzzPrefixer(f *testing.F) {
	f.Add("a\nb", 2)
	f.Add("\n\n", 1)
	f.Add(strings.Repeat("x", maxLine+1), maxLine)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 {
			return
		}
		var out bytes.Buffer
		w := NewPrefixer(&out, nil, false).Writer("v")
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			io.WriteString(w, rest[:n])
			rest = rest[n:]
		}
		w.Close()
		got := strings.ReplaceAll("\n"+out.String(), "\nv: ", "\n")[1:]
		want := text
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if !strings.Contains(text, "v: ") && got != want {
			t.Errorf("%q became %q", text, got)
		}
	})
}
