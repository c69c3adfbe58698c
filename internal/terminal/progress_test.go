package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// screen interprets what progress writes, so that tests see what a person sees: rows of text, cursor up, erase below.
type screen struct {
	rows []string
	row  int
}

var move = regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)

func (s *screen) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if m := move.FindStringSubmatch(text); m != nil {
			n := 1
			fmt.Sscan(m[1], &n)
			switch m[2] {
			case "A":
				s.row -= n
			case "J":
				s.rows = s.rows[:s.row]
			case "m":
			default:
				panic("unknown sequence " + m[0])
			}
			text = text[len(m[0]):]
			continue
		}
		for len(s.rows) <= s.row {
			s.rows = append(s.rows, "")
		}
		switch text[0] {
		case '\n':
			s.row++
		case '\r':
		default:
			s.rows[s.row] += text[:1]
		}
		text = text[1:]
	}
	return len(p), nil
}

func (s *screen) String() string { return strings.Join(s.rows, "\n") }

// bench is a progress with a clock and beats of the test's own.
type bench struct {
	*Progress
	clock time.Time
}

func newBench(w io.Writer, live, quiet bool) *bench {
	b := &bench{Progress: NewProgress(w, quiet), clock: time.Unix(1000, 0)}
	b.live, b.colour = live, live
	b.columns = func() int { return 40 }
	b.background = func() bool { return false }
	b.now = func() time.Time { return b.clock }
	b.ticks = func() (<-chan time.Time, func()) { return nil, func() {} }
	return b
}

func (b *bench) wait(d time.Duration) {
	b.clock = b.clock.Add(d)
	b.tick()
}

func TestPlainProgress(t *testing.T) {
	var out bytes.Buffer
	p := newBench(&out, false, false)
	short := p.Start("reading the kernel")
	p.wait(time.Second)
	short.Done()
	boot := p.Start("booting 2 VMs")
	p.wait(time.Second)
	boot.Detail("1 of 2 ready")
	p.wait(1500 * time.Millisecond)
	p.wait(time.Second)
	p.Printf("no KVM: %s", "using TCG")
	boot.Done()
	boot.Done()
	stop := p.Start("stopping\x1b[2J")
	p.wait(2 * time.Minute)
	stop.Fail()
	measure := p.Start("measuring")
	p.wait(time.Minute)
	measure.Interrupt()
	want := `nearmetal: booting 2 VMs...
nearmetal: no KVM: using TCG
nearmetal: booting 2 VMs: done after 3.5 s
nearmetal: stopping?[2J...
nearmetal: stopping?[2J: failed after 2 min 0 s
nearmetal: measuring...
nearmetal: measuring: interrupted after 1 min 0 s
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// A job that is put into the background of a terminal draws nothing over what is typed there.
func TestProgressInBackground(t *testing.T) {
	var out bytes.Buffer
	p := newBench(&out, true, false)
	p.colour = false
	behind := false
	p.background = func() bool { return behind }
	boot := p.Start("booting")
	p.wait(time.Second)
	behind = true
	p.wait(time.Second)
	p.wait(time.Second)
	p.Printf("no KVM")
	boot.Done()
	if want := "| booting 1.0 s\nnearmetal: booting...\nnearmetal: no KVM\nnearmetal: booting: done after 3.0 s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestQuietProgress(t *testing.T) {
	for _, live := range []bool{false, true} {
		var out bytes.Buffer
		p := newBench(&out, live, true)
		s := p.Start("booting")
		p.wait(time.Minute)
		p.Notef("not important")
		p.Printf("a warning")
		s.Done()
		p.Close()
		if out.String() != "nearmetal: a warning\n" {
			t.Errorf("live %v: %q", live, out.String())
		}
	}
}

func TestLiveProgress(t *testing.T) {
	var sc screen
	p := newBench(&sc, true, false)
	see := func(want ...string) {
		t.Helper()
		if got := strings.TrimRight(sc.String(), "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	}
	boot := p.Start("booting 2 VMs")
	p.wait(200 * time.Millisecond)
	see()
	p.wait(200 * time.Millisecond)
	see(`\ booting 2 VMs 0.4 s`)
	boot.Detail("1 of 2 ready, and a text that is far longer than the line")
	net := p.Start("joining the network")
	p.wait(time.Second)
	see(`\ booting 2 VMs: 1 of 2 ready,... 1.4 s`, `| joining the network 1.0 s`)
	p.Printf("a warning")
	see("nearmetal: a warning")
	p.wait(0)
	see("nearmetal: a warning", `\ booting 2 VMs: 1 of 2 ready,... 1.4 s`, `| joining the network 1.0 s`)
	boot.Done()
	see("nearmetal: a warning", `| joining the network 1.0 s`)

	// Other output removes the live line, which does not return in the middle of a line.
	out := p.Writer(&sc)
	fmt.Fprint(out, "half a ")
	p.wait(time.Second)
	see("nearmetal: a warning", "half a ")
	fmt.Fprintln(out, "line")
	p.wait(0)
	see("nearmetal: a warning", "half a line", `| joining the network 2.0 s`)
	net.Fail()
	see("nearmetal: a warning", "half a line")

	var many []*Step
	for i := 0; i < 12; i++ {
		many = append(many, p.Start(fmt.Sprint("step ", i)))
	}
	p.wait(time.Second)
	if n := len(sc.rows); n != 2+maxLines+1 || sc.rows[n-1] != "  and 4 more" {
		t.Errorf("%d rows:\n%s", n, sc.String())
	}
	p.Close()
	see("nearmetal: a warning", "half a line")
	many[0].Done()
	p.wait(time.Second)
	see("nearmetal: a warning", "half a line")
}

// TestProgressOfManyGoroutines is for the race detector, with real beats.
func TestProgressOfManyGoroutines(t *testing.T) {
	var sc screen
	p := NewProgress(&sc, false)
	p.live, p.background = true, func() bool { return false }
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s := p.Start("step")
			for j := 0; j < 20; j++ {
				s.Detail("%d", j)
				fmt.Fprintln(p.Writer(io.Discard), j)
				p.tick()
			}
			s.Done()
		}()
	}
	wg.Wait()
	p.Close()
	if sc.String() != "" {
		t.Errorf("left on the screen: %q", sc.String())
	}
}

func TestNilProgress(t *testing.T) {
	var p *Progress
	s := p.Start("x")
	s.Detail("y")
	s.Done()
	s.Fail()
	p.Printf("z")
	p.Notef("z")
	p.Close()
	var out bytes.Buffer
	fmt.Fprint(p.Writer(&out), "text")
	if out.String() != "text" {
		t.Errorf("%q", out.String())
	}
}

func TestColoursAreRefused(t *testing.T) {
	if Coloured(&bytes.Buffer{}) || Live(os.NewFile(^uintptr(0), "closed")) || IsTerminal(nil) {
		t.Error("what is not a terminal is taken for one")
	}
	if Paint("x", Red, false) != "x" || Paint("x", Red, true) != "\x1b[31mx\x1b[0m" || Paint("x", Plain, true) != "x" {
		t.Error("wrong colours")
	}
}
