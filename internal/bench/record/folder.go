package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

// The files of a run's directory.
const (
	RunFile     = "run.json"
	SamplesFile = "samples.jsonl"
)

// Bounds of the input: a directory may come from anybody.
const (
	maxRunBytes  = 64 << 20 // run.json; it contains a plan and a drawing of a large machine
	maxLineBytes = 1 << 20  // a line of samples.jsonl
	maxSamples   = 5_000_000
)

// Load reads a run's directory. Of a truncated or damaged samples file the intact lines are kept; notes list the
// omissions, one line each.
func Load(dir string) (run *Run, samples []Sample, notes []string, err error) {
	if run, err = LoadRun(dir); err != nil {
		return nil, nil, nil, err
	}
	path := filepath.Join(dir, SamplesFile)
	f, err := open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return run, nil, []string{path + " is missing: the run has no results"}, nil
	case err != nil:
		return nil, nil, nil, fmt.Errorf("cannot read the results: %w", err)
	}
	defer f.Close()
	samples, notes, err = ReadSamples(path, f)
	return run, samples, notes, err
}

// LoadRun reads run.json of a run's directory.
func LoadRun(dir string) (*Run, error) {
	path := filepath.Join(dir, RunFile)
	f, err := open(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is not a directory of a benchmark run: it has no %s (nearmetal bench run makes one)", dir, RunFile)
	case err != nil:
		return nil, fmt.Errorf("cannot read the run: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRunBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if len(text) > maxRunBytes {
		return nil, fmt.Errorf("%s is larger than 64 MiB, which no run's is", path)
	}
	run, err := ParseRun(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}

// open opens a regular file: a pipe could block forever.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a plain file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ParseRun parses the text of a run.json and checks what readers rely on: the version, and that variants and cases
// have unique names.
func ParseRun(text []byte) (*Run, error) {
	var r Run
	if err := json.Unmarshal(text, &r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
			return nil, fmt.Errorf("line %d is not JSON: %v", line, err)
		}
		return nil, fmt.Errorf("is not a record of a run: %v", err)
	}
	if r.Version < 1 || r.Version > Version {
		return nil, fmt.Errorf("has version %d of the format, and this nearmetal reads up to %d: use a newer one", r.Version, Version)
	}
	seen := map[string]bool{}
	for i, v := range r.Variants {
		if v.Label == "" || seen[v.Label] {
			return nil, fmt.Errorf("variant %d has no label of its own (%q)", i, v.Label)
		}
		seen[v.Label] = true
	}
	seen = map[string]bool{}
	for i, c := range r.Cases {
		if c.Name == "" || seen[c.Name] {
			return nil, fmt.Errorf("case %d has no name of its own (%q)", i, c.Name)
		}
		seen[c.Name] = true
	}
	return &r, nil
}

// ReadSamples reads the lines of a samples file; name is used in notes and errors. A line that is not a sample, and
// an incomplete last line, are omitted with a note (at most ten).
func ReadSamples(name string, in io.Reader) (samples []Sample, notes []string, err error) {
	r := bufio.NewReaderSize(in, 64<<10)
	bad := 0
	leave := func(n int, why string) {
		if bad++; bad <= 10 {
			notes = append(notes, fmt.Sprintf("%s:%d: %s: left out", name, n, why))
		}
	}
	for n := 1; ; n++ {
		line, whole, tooLong, err := readLine(r)
		if err != nil {
			return samples, notes, fmt.Errorf("cannot read %s: %w", name, err)
		}
		if len(line) == 0 && !whole && !tooLong {
			break
		}
		switch s, why := parseSample(line); {
		case tooLong:
			leave(n, "the line is longer than 1 MiB")
		case !whole:
			leave(n, "the file was cut short in this line")
		case len(bytes.TrimSpace(line)) == 0:
		case why != "":
			leave(n, why)
		case len(samples) == maxSamples:
			return samples, append(notes, fmt.Sprintf("%s:%d: more than %d samples: the rest is left out", name, n, maxSamples)), nil
		default:
			samples = append(samples, s)
		}
		if !whole {
			break
		}
	}
	if bad > 10 {
		notes = append(notes, fmt.Sprintf("%s: %d more lines were left out", name, bad-10))
	}
	return samples, notes, nil
}

// readLine returns the next line without its newline; whole is false at the end of the file.
func readLine(r *bufio.Reader) (line []byte, whole, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLineBytes; tooLong {
			line = line[:0]
		} else {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), true, tooLong, nil
		case errors.Is(err, io.EOF):
			return line, false, tooLong, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, false, err
		}
	}
}

func parseSample(line []byte) (s Sample, why string) {
	if err := json.Unmarshal(line, &s); err != nil {
		return s, "no sample (" + err.Error() + ")"
	}
	switch {
	case s.Case == "" || s.Variant == "":
		return s, "a sample without its case or variant"
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
		return s, "its value is not a number"
	}
	return s, ""
}
