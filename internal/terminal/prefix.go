package terminal

import (
	"bytes"
	"io"
	"sync"
	"time"

	"nearmetal/internal/text"
)

// maxLine is how much of a line, in bytes, is kept while its end is awaited. What is longer is written in pieces as it
// comes, and no other VM's output until its end.
const maxLine = 64 << 10

// holdBound is how long another VM's output waits for the end of such a line. Then the line is broken: a program may wait
// in the middle of a line for one whose output waits here.
var holdBound = 10 * time.Second

// Prefixer puts the output of several VMs on one writer, whole lines at a time,
// each line with the name of its VM before it.
type Prefixer struct {
	mu       sync.Mutex
	w        io.Writer
	holder   *prefixWriter // has begun a long line and not ended it; nil: none
	released chan struct{} // closed when holder changes
	prefixes map[string]string
	colour   bool
}

// NewPrefixer returns a Prefixer on w. names are the VMs in their order, which
// decides their colours; colour reports whether there are any (see Coloured).
func NewPrefixer(w io.Writer, names []string, colour bool) *Prefixer {
	p := &Prefixer{w: w, prefixes: make(map[string]string, len(names)), colour: colour}
	for i, name := range names {
		p.prefixes[name] = Paint(text.Clean(name)+":", vmColours[i%len(vmColours)], colour) + " "
	}
	return p
}

// Writer returns a writer for the output of the VM name. Close writes a last line
// that has no end. Writers of one Prefixer may be used at once, and one writer by
// several goroutines. A write error stays: later writes give it again.
func (p *Prefixer) Writer(name string) io.WriteCloser {
	prefix, ok := p.prefixes[name]
	if !ok {
		prefix = text.Clean(name) + ": "
	}
	return &prefixWriter{p: p, prefix: []byte(prefix)}
}

type prefixWriter struct {
	p      *Prefixer
	prefix []byte

	mu   sync.Mutex
	rest []byte // what is not written of the line that has not ended
	line state
	err  error
}

// state is how a writer's last line, which has not ended, is written.
type state int

const (
	whole  state = iota // at its end
	long                // as it comes: all of it but for its end is written
	broken              // in lines of maxLine
)

func (w *prefixWriter) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	written := 0
	for len(data) > 0 && w.err == nil {
		// A bounded part at a time, so that a large write is not held twice.
		part := data[:min(len(data), maxLine)]
		data = data[len(part):]
		w.add(part)
		if w.err == nil {
			written += len(part)
		}
	}
	return written, w.err
}

// add writes the lines that end in part, which has at most maxLine bytes, and what comes of a long one; it keeps the rest.
func (w *prefixWriter) add(part []byte) {
	var out bytes.Buffer
	for len(part) > 0 && w.err == nil {
		line, after, ended := bytes.Cut(part, []byte("\n"))
		part = after
		if w.line == long && w.proceed(line, ended) {
			continue
		}
		room := maxLine - len(w.rest)
		switch {
		case len(line) <= room:
			w.rest = append(w.rest, line...)
			if !ended {
				continue
			}
			w.line = whole
			w.put(&out, nil)
		case w.line == broken:
			w.put(&out, line[:room])
			w.rest = append(w.rest, line[room:]...)
			if ended {
				w.line = whole
				w.put(&out, nil)
			}
		case ended:
			w.put(&out, line)
		default:
			out.Write(w.prefix)
			out.Write(w.rest)
			out.Write(line)
			w.rest, w.line = w.rest[:0], long
			w.flush(out.Bytes())
			out.Reset()
		}
	}
	w.flush(out.Bytes())
}

// put adds what is kept, and more of the line, to out as a line.
func (w *prefixWriter) put(out *bytes.Buffer, more []byte) {
	for _, b := range [][]byte{w.prefix, w.rest, more, {'\n'}} {
		out.Write(b)
	}
	w.rest = w.rest[:0]
}

// proceed writes more of a long line. It returns false where another VM's output has broken that.
func (w *prefixWriter) proceed(line []byte, ended bool) bool {
	w.p.lock(w)
	defer w.p.mu.Unlock()
	if w.p.holder != w {
		w.line = broken
		return false
	}
	if ended {
		line = append(line[:len(line):len(line)], '\n')
		w.line = whole
		w.p.hold(nil)
	}
	w.write(line)
	return true
}

// flush writes whole lines in one call, and what there is of a long line after them.
func (w *prefixWriter) flush(lines []byte) {
	if len(lines) == 0 || w.err != nil {
		return
	}
	w.p.lock(w)
	defer w.p.mu.Unlock()
	if w.line == long {
		w.p.hold(w)
	}
	w.write(lines)
}

// write writes, with p locked. Who cannot write keeps nobody waiting.
func (w *prefixWriter) write(b []byte) {
	if _, w.err = w.p.w.Write(b); w.err != nil && w.p.holder == w {
		w.p.hold(nil)
	}
}

// lock locks p for w when no other writer has begun a long line, or has had holdBound to end it.
func (p *Prefixer) lock(w *prefixWriter) {
	p.mu.Lock()
	for p.holder != nil && p.holder != w {
		released := p.released
		p.mu.Unlock()
		t := time.NewTimer(holdBound)
		select {
		case <-released:
			p.mu.Lock()
		case <-t.C:
			p.mu.Lock()
			if p.released == released {
				p.holder.write([]byte{'\n'})
				p.hold(nil)
			}
		}
		t.Stop()
	}
}

// hold makes w the holder; nil: nobody is.
func (p *Prefixer) hold(w *prefixWriter) {
	if p.holder != nil {
		close(p.released)
	}
	if p.holder = w; w != nil {
		p.released = make(chan struct{})
	}
}

// Close writes the end of a last line that has none.
func (w *prefixWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out bytes.Buffer
	switch {
	case w.line == long && w.err == nil:
		w.proceed(nil, true)
	case len(w.rest) > 0:
		w.put(&out, nil)
		w.flush(out.Bytes())
	}
	w.rest, w.line = nil, whole
	return w.err
}
