package channel

import (
	"errors"
	"fmt"
	"io"
)

// ErrClosed is the error of the streams of a Mux that was closed on this side.
var ErrClosed = errors.New("the channel is closed")

// CarrierError is the error of every stream whose carrier ended.
type CarrierError struct {
	Name   string // name of the Mux's other side
	Cause  error
	Detail string // result of Options.Explain
}

func (e *CarrierError) Error() string {
	what := "the channel failed: " + e.Cause.Error()
	if errors.Is(e.Cause, io.EOF) || errors.Is(e.Cause, io.ErrUnexpectedEOF) || errors.Is(e.Cause, io.ErrClosedPipe) {
		what = "has ended"
	}
	s := e.Name + ": " + what
	if e.Name == "" {
		s = what
	}
	if e.Detail != "" {
		s += "\n" + e.Detail
	}
	return s
}

func (e *CarrierError) Unwrap() error { return e.Cause }

// ProtocolError reports how the other side violated the protocol.
type ProtocolError struct{ What string }

func (e *ProtocolError) Error() string { return "the other side sent " + e.What }

func protocolError(format string, a ...any) error {
	return &ProtocolError{fmt.Sprintf(format, a...)}
}

// ResetError is the error of a stream that the other side reset. Text is sanitized: one or more lines of printable
// text.
type ResetError struct{ Text string }

func (e *ResetError) Error() string { return e.Text }
