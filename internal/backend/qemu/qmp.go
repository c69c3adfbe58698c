package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/linejson"
)

const (
	maxQMPLine = 4 << 20 // bytes; the longest answer, query-qmp-schema's, has 0.2 MB
	maxEvents  = 64      // events kept for a slow reader
)

// errQMPClosed is the error of every call after QEMU's end.
var errQMPClosed = errors.New("QEMU's monitor is closed")

// QMP is a client of QEMU's monitor protocol on a connected stream. Its methods may be used concurrently.
type QMP struct {
	conn   io.ReadWriteCloser
	events chan Event
	done   chan struct{} // closed when nothing more will be read

	mu      sync.Mutex
	nextID  uint64
	pending map[string]chan<- qmpMessage
	err     error // why done is closed
	writeMu sync.Mutex
	version Version
	pkg     string
}

// Event is an unsolicited report of QEMU.
type Event struct {
	Name string          // SHUTDOWN, RESET, …
	Data json.RawMessage // its arguments, or nil
}

// QMPError is QEMU's answer to a command that failed.
type QMPError = qemufacts.Refused

// qmpMessage is any line that QEMU sends.
type qmpMessage struct {
	Greeting *struct {
		Version struct {
			QEMU    Version `json:"qemu"`
			Package string  `json:"package"`
		} `json:"version"`
	} `json:"QMP"`
	ID     json.RawMessage `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// newQMP takes ownership of a connection, waits for QEMU's greeting and enters command mode. It closes the connection
// if it fails or ctx is done first.
func newQMP(ctx context.Context, conn io.ReadWriteCloser) (*QMP, error) {
	q := &QMP{conn: conn, events: make(chan Event, maxEvents), done: make(chan struct{}), pending: map[string]chan<- qmpMessage{}}
	greeting := make(chan struct{})
	go q.read(greeting)
	fail := func(err error) (*QMP, error) {
		conn.Close()
		<-q.done
		return nil, err
	}
	select {
	case <-greeting:
	case <-q.done:
		return fail(q.err)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	if err := q.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		return fail(err)
	}
	return q, nil
}

// Execute runs a command with its arguments (marshalled to a JSON object; nil for none) and unmarshals its result
// into result (nil to ignore it). A command that QEMU rejects returns a *QMPError.
func (q *QMP) Execute(ctx context.Context, command string, args, result any) error {
	answer := make(chan qmpMessage, 1)
	q.mu.Lock()
	if q.err != nil {
		q.mu.Unlock()
		return q.err
	}
	q.nextID++
	id := strconv.FormatUint(q.nextID, 10)
	q.pending[id] = answer
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.pending, id)
		q.mu.Unlock()
	}()

	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, args, id})
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	q.writeMu.Lock()
	_, err = q.conn.Write(append(line, '\n'))
	q.writeMu.Unlock()
	if err != nil {
		return errQMPClosed
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return &QMPError{Command: command, Class: m.Error.Class, Desc: oneLine(m.Error.Desc)}
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(m.Return, result); err != nil {
			return fmt.Errorf("QEMU: %s: strange answer: %w", command, err)
		}
		return nil
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return fmt.Errorf("QEMU: %s: %w", command, context.Cause(ctx))
	}
}

// Events returns the channel of QEMU's events, which is closed when QEMU ends. If nobody reads them, the oldest are
// dropped.
func (q *QMP) Events() <-chan Event { return q.events }

// Close closes the connection; QEMU continues.
func (q *QMP) Close() error {
	err := q.conn.Close()
	<-q.done
	return err
}

// read passes on QEMU's lines until the stream ends. greeting is closed at the first one.
func (q *QMP) read(greeting chan struct{}) {
	err := q.readLines(greeting)
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	close(q.done)
	close(q.events)
	q.conn.Close()
}

func (q *QMP) readLines(greeting chan struct{}) error {
	greeted := false
	r := bufio.NewReaderSize(q.conn, 32<<10)
	for {
		line, err := linejson.Line(r, maxQMPLine)
		var long linejson.TooLongError
		if errors.As(err, &long) {
			return fmt.Errorf("QEMU's monitor sent %w", long)
		}
		if err != nil {
			return errQMPClosed
		}
		var m qmpMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("QEMU's monitor sent an invalid QMP message: %.60q", line)
		}
		switch {
		case !greeted:
			if m.Greeting == nil {
				return fmt.Errorf("QEMU's monitor did not greet: %.60q", line)
			}
			greeted = true
			q.version, q.pkg = m.Greeting.Version.QEMU, m.Greeting.Version.Package
			close(greeting)
		case m.Event != "":
			q.tell(Event{m.Event, m.Data})
		case m.Return != nil || m.Error != nil:
			q.answer(m)
		}
	}
}

// tell keeps an event, and drops the oldest if nobody reads them.
func (q *QMP) tell(e Event) {
	for {
		select {
		case q.events <- e:
			return
		default:
		}
		select {
		case <-q.events:
		default:
		}
	}
}

// answer passes a message to the call that waits for it, if any.
func (q *QMP) answer(m qmpMessage) {
	var id string
	if json.Unmarshal(m.ID, &id) != nil {
		return
	}
	q.mu.Lock()
	ch := q.pending[id]
	delete(q.pending, id)
	q.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// VCPU is one row of query-cpus-fast.
type VCPU struct {
	Index  int `json:"cpu-index"`
	Thread int `json:"thread-id"` // thread ID on the host
}

// VCPUs lists the vCPUs with their threads, by index.
func (q *QMP) VCPUs(ctx context.Context) ([]VCPU, error) {
	var list []VCPU
	err := q.Execute(ctx, "query-cpus-fast", nil, &list)
	return list, err
}

// Stop halts the VM's vCPUs.
func (q *QMP) Stop(ctx context.Context) error { return q.Execute(ctx, "stop", nil, nil) }

// Cont lets them run again.
func (q *QMP) Cont(ctx context.Context) error { return q.Execute(ctx, "cont", nil, nil) }
