package verify

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/topology"
)

// Run runs a program in a VM and copies its standard output to w until it ends. Its standard error is dropped. An error
// of w ends the program.
type Run func(ctx context.Context, args []string, w io.Writer) error

// Guest is what a guest's kernel reports about the guest.
type Guest struct {
	Host *topology.Host `json:"host,omitempty"`
	// Dax is the size of its first dax device in bytes, 0: none.
	Dax uint64 `json:"dax,omitempty"`
	// Error is the reason why the guest could not be read.
	Error string `json:"error,omitempty"`
}

// gatherScript prints the input of readAnswer. It needs a POSIX shell and cat, and starts one process, because each
// costs up to 0.1 s if instructions are emulated.
//
//go:embed gather.sh
var gatherScript string

// Timeouts for the answer of a busy guest: guestQuiet until its next output, and guestMost until the last. The answer
// needs minutes if an emulated VM runs in an emulated host.
var (
	guestQuiet = 60 * time.Second
	guestMost  = 10 * time.Minute
)

// AskGuest reads a guest's sysfs. The guest's answer is not trusted: it is bounded and checked.
func AskGuest(ctx context.Context, name string, run Run) *Guest {
	ctx, cancel := context.WithTimeoutCause(ctx, guestMost, fmt.Errorf("no whole answer within %v", guestMost))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	quiet := time.AfterFunc(guestQuiet, func() { stop(fmt.Errorf("it sent nothing for %v", guestQuiet)) })
	defer quiet.Stop()
	out := limited{came: func() { quiet.Reset(guestQuiet) }}
	err := run(ctx, []string{"/bin/sh", "-c", gatherScript, "sh"}, &out)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if out.full {
		err = errTooMuch
	}
	if err != nil {
		return &Guest{Error: err.Error()}
	}
	g, err := readAnswer(out.buf.Bytes(), name)
	if err != nil {
		return &Guest{Error: err.Error()}
	}
	return g
}

// Bounds of a guest's answer: that of a VM of 4,096 vCPUs has 6 MB and 100,000 lines.
const (
	maxAnswer  = 16 << 20
	maxEntries = 1 << 18
	maxPath    = 512
)

var errTooMuch = fmt.Errorf("it sent more than %d bytes", maxAnswer)

// limited keeps at most maxAnswer bytes, and fails if there are more.
type limited struct {
	buf  bytes.Buffer
	full bool
	came func()
}

func (l *limited) Write(b []byte) (int, error) {
	l.came()
	if l.buf.Len()+len(b) > maxAnswer {
		l.full = true
		return 0, errTooMuch
	}
	return l.buf.Write(b)
}

// readAnswer parses the lines "f PATH VALUE" (an attribute; further lines of the same one follow directly), "l PATH
// TARGET" (a link) and those of readLists, and has them read as a captured tree.
func readAnswer(b []byte, name string) (*Guest, error) {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	var path, text string
	flush := func() error {
		if path == "" {
			return nil
		}
		err := tw.WriteHeader(&tar.Header{Name: path, Mode: 0o444, Size: int64(len(text)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(tw, text)
		}
		path, text = "", ""
		return err
	}
	g := &Guest{}
	ended := false
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for n := 0; sc.Scan(); n++ {
		kind, rest, ok1 := strings.Cut(sc.Text(), " ")
		if count, ok := strings.CutPrefix(sc.Text(), "c lists "); ok {
			if err := flush(); err != nil {
				return nil, err
			}
			if err := readLists(sc, tw, count); err != nil {
				return nil, err
			}
			continue
		}
		if kind == "end" {
			ended = true
			break
		}
		at, value, ok2 := strings.Cut(rest, " ")
		if n == maxEntries || !ok1 || !ok2 || kind != "f" && kind != "l" || !validPath(at) {
			return nil, fmt.Errorf("it sent a strange line: %.60q", sc.Text())
		}
		if strings.HasPrefix(at, "sys/bus/dax/devices/") {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 63); err == nil && g.Dax == 0 {
				g.Dax = n
			}
			continue
		}
		if kind == "f" && at == path {
			text += value + "\n"
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		if kind == "f" {
			path, text = at, value+"\n"
			continue
		}
		if !validPath(strings.TrimPrefix(value, "/")) {
			return nil, fmt.Errorf("it sent a strange line: %.60q", sc.Text())
		}
		if err := tw.WriteHeader(&tar.Header{Name: at, Linkname: value, Mode: 0o777, Typeflag: tar.TypeSymlink}); err != nil {
			return nil, err
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if !ended {
		return nil, errors.New("its answer is cut short")
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	h, err := topology.ReadTar(&archive, name)
	if err != nil {
		return nil, err
	}
	g.Host = h
	return g, nil
}

// readLists reads a number of paths, followed by as many lines with their contents.
func readLists(sc *bufio.Scanner, tw *tar.Writer, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxEntries {
		return fmt.Errorf("it sent %.40q lists of CPUs", count)
	}
	var paths []string
	for len(paths) < n && sc.Scan() {
		if !validPath(sc.Text()) {
			return fmt.Errorf("it sent a strange path: %.60q", sc.Text())
		}
		paths = append(paths, sc.Text())
	}
	for _, p := range paths {
		if !sc.Scan() {
			break
		}
		err := tw.WriteHeader(&tar.Header{Name: p, Mode: 0o444, Size: int64(len(sc.Text())), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(tw, sc.Text())
		}
		if err != nil {
			return err
		}
	}
	return nil // a truncated answer lacks the end
}

// validPath reports whether a path can be one below sys or proc.
func validPath(p string) bool {
	if len(p) > maxPath || !strings.HasPrefix(p, "sys/") && !strings.HasPrefix(p, "proc/") {
		return false
	}
	for _, part := range strings.Split(p, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	for i := 0; i < len(p); i++ {
		if p[i] <= ' ' || p[i] > '~' {
			return false
		}
	}
	return true
}
