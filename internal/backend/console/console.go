// Package console keeps the printable output of a VM for a backend: the end of its serial port's output, or a log of
// the actions done for it if its port cannot be read.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	ring = 64 << 10 // bytes kept in memory
	// LogMax bounds the log file, in bytes. A file that reaches it is restarted with the last ring bytes.
	LogMax  = 1 << 20
	lineMax = 400 // characters of a line that LastLines returns
)

// Console keeps the end of the output that a VM writes to its serial port. A VM that floods it is read as fast as it
// writes, and uses neither memory nor disk.
type Console struct {
	mu      sync.Mutex
	text    []byte // the last ring bytes, and up to as many again before they are cut
	total   uint64 // bytes read so far
	changed chan struct{}
	log     *os.File
	logged  int64
	closed  bool
}

// New returns a console with a log file, which is created or truncated; without one if path is empty.
func New(path string) (*Console, error) {
	c := &Console{changed: make(chan struct{})}
	if path == "" {
		return c, nil
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("console log: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	c.log = os.NewFile(uintptr(fd), path)
	return c, nil
}

// Read reads the VM's output until it ends, and closes r and the log file.
func (c *Console) Read(r io.ReadCloser) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		c.add(buf[:n])
		if err != nil {
			break
		}
	}
	r.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	close(c.changed)
	if c.log != nil {
		c.log.Close()
	}
}

func (c *Console) add(b []byte) {
	if len(b) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += uint64(len(b))
	c.text = append(c.text, b...)
	if len(c.text) > 2*ring {
		c.text = append(c.text[:0], c.text[len(c.text)-ring:]...)
	}
	c.toLog(b)
	close(c.changed)
	c.changed = make(chan struct{})
}

// toLog writes to the log file. Errors are ignored, because a full disk must not stop the VM.
func (c *Console) toLog(b []byte) {
	if c.log == nil {
		return
	}
	if c.logged+int64(len(b)) > LogMax {
		c.log.Truncate(0)
		c.log.Seek(0, io.SeekStart)
		last := c.text[max(0, len(c.text)-ring):] // b is its end
		n, _ := fmt.Fprintf(c.log, "[nearmetal: %d bytes before this are left out]\n", c.total-uint64(len(last)))
		k, _ := c.log.Write(last)
		c.logged = int64(n + k)
		return
	}
	n, _ := c.log.Write(b)
	c.logged += int64(n)
}

// LastLines returns the last n lines that are not empty, each harmless to print.
func (c *Console) LastLines(n int) []string {
	c.mu.Lock()
	text := bytes.Clone(c.text)
	c.mu.Unlock()
	var lines []string
	for len(text) > 0 && len(lines) < n {
		i := bytes.LastIndexByte(text, '\n')
		if s := strings.TrimSpace(Harmless(string(text[i+1:]), lineMax)); s != "" {
			lines = append(lines, s)
		}
		text = text[:max(i, 0)]
	}
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return lines
}

// errConsoleEnd reports that an awaited text can no longer appear.
var errConsoleEnd = errors.New("the console ended")

// Await waits until the console has printed text (within its last ring bytes).
func (c *Console) Await(ctx context.Context, text string) error {
	for {
		c.mu.Lock()
		found := bytes.Contains(c.text, []byte(text))
		changed, closed := c.changed, c.closed
		c.mu.Unlock()
		if found {
			return nil
		}
		if closed {
			return fmt.Errorf("waiting for %q: %w", text, errConsoleEnd)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q on the console: %w", text, ctx.Err())
		}
	}
}

// Harmless returns text that a VM wrote in a form that a terminal prints and does not interpret: no escape sequences,
// control characters or broken UTF-8; at most limit characters. text.Clean is not used, because a console is read to
// find a fault: control characters stay visible as escapes, and only colour sequences are removed.
func Harmless(s string, limit int) string {
	var b strings.Builder
	n := 0
	for i := 0; i < len(s); {
		if k := escapeLen(s[i:]); k > 0 {
			i += k
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\r':
		case r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i]), 16))
		case !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// escapeLen returns the length of the terminal control sequence (ESC [ parameters final) at the start of s, or 0.
func escapeLen(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s) && i < 32; i++ {
		if s[i] >= 0x40 && s[i] <= 0x7e {
			return i + 1
		}
		if s[i] < 0x20 || s[i] > 0x3f {
			break
		}
	}
	return 0
}
