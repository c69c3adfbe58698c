package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/text"
)

// Durations of progress. A log does not announce steps shorter than patience.
const (
	patience = 2 * time.Second
	hold     = 300 * time.Millisecond // before a live line appears, so that it does not flicker
	beat     = 120 * time.Millisecond // between two frames of a live line
	maxLines = 8                      // live lines at once
)

// Progress reports long steps on standard error. On a terminal each step has a live line with its duration. Elsewhere,
// and in the background of a shell, a plain line announces a step once it has lasted over two seconds, and another
// reports its end. Its methods may be called concurrently from several goroutines, and on nil, which prints nothing.
type Progress struct {
	mu     sync.Mutex
	w      io.Writer
	quiet  bool
	live   bool
	colour bool
	steps  []*Step
	drawn  int  // live lines on the screen now
	open   bool // other output has begun a line and not ended it
	wake   chan struct{}

	columns    func() int
	background func() bool // reports whether another process has the terminal, in which case no live lines are drawn
	now        func() time.Time
	ticks      func() (<-chan time.Time, func()) // beats, and how to end them
}

// Step is one operation that may last long. Its methods may be called on nil.
type Step struct {
	p      *Progress
	name   string
	detail string
	began  time.Time
	told   bool // a plain line has announced it
	ended  bool
}

// NewProgress returns progress on w, which is standard error. quiet shows only messages.
func NewProgress(w io.Writer, quiet bool) *Progress {
	return &Progress{
		w: w, quiet: quiet, live: Live(w), colour: Coloured(w),
		columns:    func() int { return width(w) },
		background: background,
		now:        time.Now,
		ticks: func() (<-chan time.Time, func()) {
			t := time.NewTicker(beat)
			return t.C, t.Stop
		},
	}
}

// Start begins a step; name describes it, such as "booting 2 VMs".
func (p *Progress) Start(name string) *Step {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Step{p: p, name: text.Clean(name), began: p.now()}
	p.steps = append(p.steps, s)
	if p.wake == nil && !p.quiet {
		p.wake = make(chan struct{})
		go p.run(p.wake)
	}
	return s
}

// run draws until there are no more steps.
func (p *Progress) run(stop <-chan struct{}) {
	ticks, end := p.ticks()
	defer end()
	for {
		select {
		case <-stop:
			return
		case <-ticks:
			p.tick()
		}
	}
}

func (p *Progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet {
		return
	}
	if p.live && !p.background() {
		p.redraw()
		return
	}
	for _, s := range p.steps {
		if !s.told && p.now().Sub(s.began) >= patience {
			s.told = true
			fmt.Fprintf(p.w, "nearmetal: %s...\n", s.name)
		}
	}
}

// Detail sets how far the step is, such as "1 of 2 ready".
func (s *Step) Detail(format string, args ...any) {
	if s == nil {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.detail = text.Clean(fmt.Sprintf(format, args...))
}

// Done ends the step and removes its live line. If a plain line announced the step, a second one reports its duration.
// A second call does nothing.
func (s *Step) Done() { s.end("done") }

// Fail ends the step as Done does, for one that did not succeed. The caller shows the error itself.
func (s *Step) Fail() { s.end("failed") }

// Interrupt ends the step as Done does, for one that the user interrupted.
func (s *Step) Interrupt() { s.end("interrupted") }

func (s *Step) end(how string) {
	if s == nil {
		return
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	for i := range p.steps {
		if p.steps[i] == s {
			p.steps = append(p.steps[:i], p.steps[i+1:]...)
			break
		}
	}
	if s.told {
		fmt.Fprintf(p.w, "nearmetal: %s: %s after %s\n", s.name, how, seconds(p.now().Sub(s.began)))
	}
	if len(p.steps) == 0 && p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
	switch {
	case p.drawn == 0:
	case p.background():
		p.clear()
	default:
		p.redraw()
	}
}

// Close removes all live lines and ends all steps.
func (p *Progress) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.steps {
		s.ended = true
	}
	p.steps = nil
	p.clear()
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// Printf shows a one-line message that --quiet does not suppress: a warning, or something that the user has to know.
func (p *Progress) Printf(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "nearmetal: %s\n", Bounded(text.Clean(fmt.Sprintf(format, args...))))
}

// Notef shows a one-line message, unless quiet.
func (p *Progress) Notef(format string, args ...any) {
	if p != nil && !p.quiet {
		p.Printf(format, args...)
	}
}

// Writer returns a writer to w, for output that may be shown on the same terminal. Live lines are removed before that
// output, and do not return in the middle of one of its lines.
func (p *Progress) Writer(w io.Writer) io.Writer {
	if p == nil || p.quiet || !p.live {
		return w
	}
	return &overWriter{p, w}
}

type overWriter struct {
	p *Progress
	w io.Writer
}

func (o *overWriter) Write(data []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	o.p.clear()
	if len(data) > 0 {
		o.p.open = data[len(data)-1] != '\n'
	}
	return o.w.Write(data)
}

// redraw draws the steps over the previous frame.
func (p *Progress) redraw() {
	if p.open {
		return
	}
	var picture strings.Builder
	picture.WriteString(erase(p.drawn))
	p.drawn = 0
	now, columns := p.now(), p.columns()
	hidden := 0
	for _, s := range p.steps {
		if now.Sub(s.began) < hold {
			continue
		}
		if p.drawn >= maxLines {
			hidden++
			continue
		}
		picture.WriteString(p.line(s, now, columns) + "\n")
		p.drawn++
	}
	if hidden > 0 {
		fmt.Fprintf(&picture, "  and %d more\n", hidden)
		p.drawn++
	}
	if picture.Len() > 0 {
		io.WriteString(p.w, picture.String())
	}
}

// line returns a step's live line, shorter than the terminal is wide.
func (p *Progress) line(s *Step, now time.Time, columns int) string {
	const spinner = `|/-\`
	elapsed := now.Sub(s.began)
	sign := string(spinner[int(elapsed/beat)%len(spinner)])
	words := s.name
	if s.detail != "" {
		words += ": " + s.detail
	}
	taken := seconds(elapsed)
	words = cut(words, columns-len(taken)-4)
	return Paint(sign, Bold, p.colour) + " " + words + " " + Paint(taken, Dim, p.colour)
}

// clear removes the live lines. In the background it leaves them, because the user may have typed below them since.
func (p *Progress) clear() {
	if p.drawn > 0 && !p.background() {
		io.WriteString(p.w, erase(p.drawn))
	}
	p.drawn = 0
}

// erase returns the control sequence that removes n lines above the cursor.
func erase(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", n)
}

// seconds formats a duration for people: 3.4 s, 2 min 5 s.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
}
