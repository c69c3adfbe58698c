package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

const greeting = `{"QMP":{"version":{"qemu":{"micro":1,"minor":2,"major":7},"package":""},"capabilities":[]}}` + "\n"

// dialQMP connects a client to a QEMU simulated by serve, which gets each command's text and ID, and writes any
// answer.
func dialQMP(t *testing.T, serve func(w io.Writer, command, id string)) *QMP {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		io.WriteString(theirs, greeting)
		sc := bufio.NewScanner(theirs)
		for sc.Scan() {
			var c struct {
				Execute string `json:"execute"`
				ID      string `json:"id"`
			}
			json.Unmarshal(sc.Bytes(), &c)
			if c.Execute == "qmp_capabilities" {
				fmt.Fprintf(theirs, `{"return":{},"id":%q}`+"\n", c.ID)
				continue
			}
			serve(theirs, sc.Text(), c.ID)
		}
	}()
	q, err := newQMP(context.Background(), ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func TestQMPExecute(t *testing.T) {
	q := dialQMP(t, func(w io.Writer, command, id string) {
		if strings.Contains(command, `"fail"`) {
			fmt.Fprintf(w, `{"error":{"class":"GenericError","desc":"no\nsuch \u001b[31mthing"},"id":%q}`+"\n", id)
			return
		}
		// An answer without a request and an event come first.
		fmt.Fprintf(w, `{"return":{"n":1},"id":"999"}`+"\n"+`{"event":"STOP","timestamp":{}}`+"\n"+`{"return":{"n":7},"id":%q}`+"\n", id)
	})
	var got struct{ N int }
	if err := q.Execute(context.Background(), "good", map[string]int{"a": 1}, &got); err != nil || got.N != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if e := <-q.Events(); e.Name != "STOP" {
		t.Errorf("event %v", e)
	}
	err := q.Execute(context.Background(), "fail", nil, nil)
	var refused *QMPError
	if !errors.As(err, &refused) || refused.Class != "GenericError" || err.Error() != `QEMU: fail: no such thing` {
		t.Errorf("%v", err)
	}
	var wrong []int
	if err := q.Execute(context.Background(), "good", nil, &wrong); err == nil {
		t.Error("an answer of another shape: no error")
	}
}

// TestQMPConcurrent makes many calls whose answers arrive in reverse order.
func TestQMPConcurrent(t *testing.T) {
	const n = 20
	var ids []string
	q := dialQMP(t, func(w io.Writer, command, id string) {
		if ids = append(ids, id); len(ids) == n {
			for i := n - 1; i >= 0; i-- {
				fmt.Fprintf(w, `{"return":%s,"id":%q}`+"\n", ids[i], ids[i])
			}
		}
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]bool{}
	for i := 0; i < n; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var id int
			if err := q.Execute(context.Background(), "x", nil, &id); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[id] {
				t.Errorf("answer %d twice", id)
			}
			seen[id] = true
		}()
	}
	wg.Wait()
}

func TestQMPGone(t *testing.T) {
	q := dialQMP(t, func(w io.Writer, command, id string) { w.(net.Conn).Close() })
	if err := q.Execute(context.Background(), "x", nil, nil); !errors.Is(err, errQMPClosed) {
		t.Errorf("%v", err)
	}
	if err := q.Execute(context.Background(), "x", nil, nil); !errors.Is(err, errQMPClosed) {
		t.Errorf("again: %v", err)
	}
	if _, ok := <-q.Events(); ok {
		t.Error("the events go on")
	}
}

func TestQMPTimeout(t *testing.T) {
	q := dialQMP(t, func(w io.Writer, command, id string) {}) // never answers
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := q.Execute(ctx, "x", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if len(q.pending) != 0 {
		t.Errorf("%d calls are remembered", len(q.pending))
	}
}

// TestQMPFlood: a QEMU that sends events endlessly uses no memory, and one that sends no line end is cut off.
func TestQMPFlood(t *testing.T) {
	q := dialQMP(t, func(w io.Writer, command, id string) {
		for i := 0; i < 10*maxEvents; i++ {
			fmt.Fprintf(w, `{"event":"E%d"}`+"\n", i)
		}
		fmt.Fprintf(w, `{"return":{},"id":%q}`+"\n", id)
	})
	if err := q.Execute(context.Background(), "x", nil, nil); err != nil {
		t.Fatal(err)
	}
	if e := <-q.Events(); len(q.Events()) != maxEvents-1 || e.Name != fmt.Sprintf("E%d", 9*maxEvents) {
		t.Errorf("%d events wait, the first is %s", len(q.Events()), e.Name)
	}
	q = dialQMP(t, func(w io.Writer, command, id string) {
		for line := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	if err := q.Execute(context.Background(), "x", nil, nil); err == nil || !strings.Contains(err.Error(), "line of more than") {
		t.Errorf("%v", err)
	}
}

// scripted is a QEMU that sends the same answer to every command.
type scripted struct {
	io.Reader
	once sync.Once
	end  chan struct{}
}

func (s *scripted) Write(b []byte) (int, error) { return len(b), nil }
func (s *scripted) Close() error                { s.once.Do(func() { close(s.end) }); return nil }

func FuzzQMP(f *testing.F) {
	f.Add([]byte(greeting + `{"return":{},"id":"1"}` + "\n" + `{"return":[{"cpu-index":0,"thread-id":5}],"id":"2"}` + "\n"))
	f.Add([]byte(greeting + `{"error":{},"id":"1"}` + "\n"))
	f.Add([]byte(greeting + `{"event":"SHUTDOWN","data":{"reason":7}}` + "\n{}\n[]\nnull\n"))
	f.Add([]byte(`{"QMP":null}` + "\n"))
	f.Add([]byte("\n\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := newQMP(context.Background(), &scripted{Reader: bytes.NewReader(b), end: make(chan struct{})})
		if err != nil {
			return
		}
		q.VCPUs(context.Background())
		for e := range q.Events() {
			shutdownReason(e.Data)
		}
		q.Close()
	})
}

// TestQMPLate: a QEMU that does not answer in time is reported by the cause of the caller's context.
func TestQMPLate(t *testing.T) {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	late := errors.New("the VMs were not ready after 1ms")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 1, late)
	defer cancel()
	<-ctx.Done()
	if _, err := newQMP(ctx, mine); err != late {
		t.Errorf("%v, want %v", err, late)
	}
}
