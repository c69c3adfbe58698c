package terminal

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is how much of a line, in bytes, is kept while its end is awaited. A
// longer one is written in pieces, each as a line of its own.
const maxLine = 64 << 10

// Prefixer puts the output of several VMs on one writer, whole lines at a time,
// each line with the name of its VM before it.
type Prefixer struct {
	mu       sync.Mutex
	w        io.Writer
	prefixes map[string]string
	colour   bool
}

// NewPrefixer returns a Prefixer on w. names are the VMs in their order, which
// decides their colours; colour reports whether there are any (see Coloured).
func NewPrefixer(w io.Writer, names []string, colour bool) *Prefixer {
	p := &Prefixer{w: w, prefixes: make(map[string]string, len(names)), colour: colour}
	for i, name := range names {
		p.prefixes[name] = Paint(Clean(name)+":", vmColours[i%len(vmColours)], colour) + " "
	}
	return p
}

// Writer returns a writer for the output of the VM name. Close writes a last line
// that has no end. Writers of one Prefixer may be used at once, and one writer by
// several goroutines. A write error stays: later writes give it again.
func (p *Prefixer) Writer(name string) io.WriteCloser {
	prefix, ok := p.prefixes[name]
	if !ok {
		prefix = Clean(name) + ": "
	}
	return &prefixWriter{p: p, prefix: []byte(prefix)}
}

type prefixWriter struct {
	p      *Prefixer
	prefix []byte

	mu   sync.Mutex
	rest []byte // the line that has not ended
	err  error
}

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

// add writes the lines that end in part and keeps the rest.
func (w *prefixWriter) add(part []byte) {
	var out bytes.Buffer
	for len(part) > 0 {
		line, after, ended := bytes.Cut(part, []byte("\n"))
		if room := maxLine - len(w.rest); len(line) > room {
			line, after = part[:room], part[room:]
		} else if !ended {
			w.rest = append(w.rest, line...)
			break
		}
		out.Write(w.prefix)
		out.Write(w.rest)
		out.Write(line)
		out.WriteByte('\n')
		w.rest = w.rest[:0]
		part = after
	}
	w.flush(out.Bytes())
}

// flush writes whole lines in one call.
func (w *prefixWriter) flush(lines []byte) {
	if len(lines) == 0 || w.err != nil {
		return
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	_, w.err = w.p.w.Write(lines)
}

// Close writes a last line without an end, and ends it.
func (w *prefixWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.flush(append(append(append([]byte(nil), w.prefix...), w.rest...), '\n'))
	}
	w.rest = nil
	return w.err
}
