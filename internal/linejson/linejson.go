// Package linejson reads and writes streams of JSON values, one per line, between two processes of nearmetal.
package linejson

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// MaxBytes bounds a line with its newline, in bytes: a cluster file has at most 1 MiB.
const MaxBytes = 8 << 20

// Write writes v and a newline, in one call of w. It fails if v makes a line of over MaxBytes, or if w does.
func Write(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) >= MaxBytes {
		return fmt.Errorf("%d bytes are more than a line may have (%d)", len(b), MaxBytes)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Read reads a line into v. Data after the line stays in r: a json.Decoder would leave the newline unread, or read
// beyond it. At the end of the stream the error is io.EOF.
func Read(r *bufio.Reader, v any) error {
	b, err := Line(r, MaxBytes)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// TooLongError is the maximum size in bytes of a line that exceeds it.
type TooLongError int

func (e TooLongError) Error() string { return fmt.Sprintf("a line of more than %d bytes", int(e)) }

// Line reads a line of at most most bytes including its newline, and returns it without that. For a longer line the
// error is a TooLongError, for one without a newline io.ErrUnexpectedEOF.
func Line(r *bufio.Reader, most int) ([]byte, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(b)+len(part) > most {
			return nil, TooLongError(most)
		}
		b = append(b, part...)
		switch {
		case err == nil:
			return b[:len(b)-1], nil
		case err == io.EOF && len(b) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
