package terminal

import (
	"bytes"
	"io"
	"sync"
	"time"

	"nearmetal/internal/text"
)

// maxLine is how much of an unfinished line, in bytes, is kept until its end arrives. A longer line is written in
// pieces as they arrive, and no other VM's output is written until its end.
const maxLine = 64 << 10

// holdBound is how long another VM's output waits for the end of such a line. Then the line is broken, because its
// program may wait in the middle of the line for the program whose output waits here.
var holdBound = 10 * time.Second

// Prefixer writes the output of several VMs to one writer, whole lines at a time, each prefixed with the name of its
// VM.
type Prefixer struct {
	mu       sync.Mutex
	w        io.Writer
	holder   *prefixWriter // has begun a long line and not ended it; nil: none
	released chan struct{} // closed when holder changes
	prefixes map[string]string
	colour   bool
}

// NewPrefixer returns a Prefixer on w. names are the VMs in their order, which decides their colours; colour enables
// colours (see Coloured).
func NewPrefixer(w io.Writer, names []string, colour bool) *Prefixer {
	p := &Prefixer{w: w, prefixes: make(map[string]string, len(names)), colour: colour}
	for i, name := range names {
		p.prefixes[name] = Paint(text.Clean(name)+":", vmColours[i%len(vmColours)], colour) + " "
	}
	return p
}

// Writer returns a writer for the output of the VM name. Close writes a last line that has no end. The writers of one
// Prefixer may be used concurrently, and one writer by several goroutines. A write error is permanent: later writes
// return it again.
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
	rest []byte // the unwritten part of the line that has not ended
	line state
	err  error
}

// state is how a writer's last, unfinished line is written.
type state int

const (
	whole  state = iota // at its end
	long                // as it arrives: all of it but its end is written
	broken              // in lines of maxLine
)

func (w *prefixWriter) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	written := 0
	for len(data) > 0 && w.err == nil {
		// Bounded parts, so that a large write is not stored twice.
		part := data[:min(len(data), maxLine)]
		data = data[len(part):]
		w.add(part)
		if w.err == nil {
			written += len(part)
		}
	}
	return written, w.err
}

// add writes the lines that end in part, which has at most maxLine bytes, and the available part of a long line. It
// keeps the rest.
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

// put appends the kept bytes, and more of the line, to out as a line.
func (w *prefixWriter) put(out *bytes.Buffer, more []byte) {
	for _, b := range [][]byte{w.prefix, w.rest, more, {'\n'}} {
		out.Write(b)
	}
	w.rest = w.rest[:0]
}

// proceed writes more of a long line. It returns false if another VM's output has broken that line.
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

// flush writes whole lines in one call, followed by the available part of a long line.
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

// write writes b; p must be locked. A writer that fails does not make the others wait.
func (w *prefixWriter) write(b []byte) {
	if _, w.err = w.p.w.Write(b); w.err != nil && w.p.holder == w {
		w.p.hold(nil)
	}
}

// lock locks p for w when no other writer has begun a long line, or when it has not ended one within holdBound.
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

// hold makes w the holder; nil: no holder.
func (p *Prefixer) hold(w *prefixWriter) {
	if p.holder != nil {
		close(p.released)
	}
	if p.holder = w; w != nil {
		p.released = make(chan struct{})
	}
}

// Close ends a last line that has no end.
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
