// Package traffic reads the counts of messages that ranks over nearmetal's libfabric provider wrote, and computes how
// much each rank exchanged with each other one over which channel (docs/run-mpi.md).
package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Variable is the environment variable with the absolute path of the directory to which ranks write their counts.
const Variable = "NEARMETAL_TRAFFIC"

// Limits of the input, which ranks write in VMs that may be hostile.
const (
	MaxBytes = 16 << 20 // of one file, or of all files of a VM
	maxFiles = 65536
	maxRank  = 1 << 20
	maxCount = 1 << 53 // the largest number that all readers of JSON represent exactly
	maxKeys  = 2
	maxLine  = 1024
)

// Classes are the size classes of messages: the largest size of each, in bytes; a last class has larger ones.
var Classes = [...]uint64{64, 1 << 10, 16 << 10, 256 << 10, 4 << 20}

const classes = len(Classes) + 1

// Channels are the channels over which messages are sent.
var Channels = [...]string{"region", "cma", "fabric"}

// Counts are the counts of one endpoint of a rank.
type Counts struct {
	Rank int // -1: its launcher did not define it
	PID  int
	VM   string // or the host, if it ran without VMs
	keys []string
	to   []sent
}

// sent is what the endpoint started with one peer over one channel.
type sent struct {
	key     string
	channel int
	bytes   uint64
	ops     [classes]uint64
}

// Read reads the counts of endpoints, one after another, at most MaxBytes. vm is the VM in which they ran; "": the
// counts name it. Read fails if the input is malformed.
func Read(r io.Reader, vm string) ([]Counts, error) {
	limited := &io.LimitedReader{R: r, N: MaxBytes + 1}
	s := bufio.NewScanner(limited)
	s.Buffer(make([]byte, maxLine), maxLine)
	var list []Counts
	var c *Counts
	n := 0
	for s.Scan() {
		n++
		f := strings.Fields(s.Text())
		var err error
		switch {
		case c == nil && len(f) == 2 && f[0] == "nearmetal-traffic" && f[1] == "1" && len(list) < maxFiles:
			c = &Counts{Rank: -2}
		case c == nil:
			err = errors.New("expected: nearmetal-traffic 1")
		case len(f) > 0 && f[0] == "self" && c.Rank == -2:
			err = c.self(f[1:], vm)
		case len(f) > 0 && f[0] == "to" && c.Rank != -2:
			err = c.sent(f[1:])
		case len(f) == 1 && f[0] == "end" && c.Rank != -2:
			list, c = append(list, *c), nil
		default:
			err = errors.New("expected: to or end")
		}
		if err != nil {
			return list, fmt.Errorf("counts of messages: line %d: %w", n, err)
		}
	}
	switch {
	case s.Err() != nil:
		return list, fmt.Errorf("counts of messages: line %d: %w", n+1, s.Err())
	case limited.N <= 0:
		return list, fmt.Errorf("counts of messages: more than %d MiB", MaxBytes>>20)
	case c != nil:
		return list, fmt.Errorf("counts of messages: line %d: cut off", n)
	}
	return list, nil
}

// ReadDir reads all counts in a directory to which Variable was set.
func ReadDir(dir string) ([]Counts, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []Counts
	for _, e := range entries {
		if len(list) >= maxFiles {
			return list, fmt.Errorf("%s: more than %d counts", dir, maxFiles)
		}
		if e.Type() != 0 && e.Type()&fs.ModeType != 0 || strings.HasPrefix(e.Name(), ".") {
			continue // not written by a rank
		}
		c, err := readFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return list, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
		}
		list = append(list, c...)
	}
	return list, nil
}

func readFile(path string) ([]Counts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, "")
}

func (c *Counts) self(f []string, vm string) (err error) {
	if len(f) < 3 || len(f) > 3+maxKeys {
		return errors.New("expected: self RANK PID HOST ADDRESS")
	}
	if c.Rank, err = strconv.Atoi(f[0]); err != nil || c.Rank < -1 || c.Rank > maxRank {
		return fmt.Errorf("%q is not a rank", f[0])
	}
	if c.PID, err = strconv.Atoi(f[1]); err != nil || c.PID < 0 {
		return fmt.Errorf("%q is not a process", f[1])
	}
	if c.VM = vm; vm == "" {
		c.VM = clean(f[2])
	}
	c.keys = f[3:]
	return nil
}

// clean keeps the characters that a host's name may have.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 64)]
}

func (c *Counts) sent(f []string) error {
	if len(f) != 3+classes {
		return errors.New("expected: to ADDRESS CHANNEL BYTES and the counts of classes")
	}
	s := sent{key: f[0], channel: -1}
	for i, name := range Channels {
		if f[1] == name {
			s.channel = i
		}
	}
	if s.channel < 0 {
		return fmt.Errorf("%q is not a channel", f[1])
	}
	for i, word := range f[2:] {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil || n > maxCount {
			return fmt.Errorf("%q is not a count", word)
		}
		if i == 0 {
			s.bytes = n
		} else {
			s.ops[i-1] = n
		}
	}
	c.to = append(c.to, s)
	return nil
}
