package main

import (
	"io"
	"sync"
)

// output is the standard output of any command. It keeps the first error of a write: code that prints does not check
// it, and execute reports it in the end.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// failed returns the first error of a write.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Fd returns the descriptor of a file, for code that checks for a terminal; otherwise an invalid descriptor.
func (o *output) Fd() uintptr {
	if f, ok := o.w.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// bare returns the writer below an output: a started program can inherit only a file, and a program in a VM reports
// errors of its output itself.
func bare(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.w
	}
	return w
}
