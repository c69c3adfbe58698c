package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/record"
)

// The files of a run's directory in addition to those of package record.
const (
	requestFile    = "request.json"   // the Request
	oldRequestFile = "order.json"     // read until 0.2.0
	progressFile   = "progress.jsonl" // one line per completed step
	logsDir        = "logs"
	workDir        = "work"
)

// folder is a run's directory, open for writing.
type folder struct {
	dir      string
	samples  *os.File
	end      int64 // end of the samples that belong to completed steps
	progress *os.File
	over     map[string]bool    // completed steps
	took     map[string]float64 // duration of steps in s
	once     map[string]float64 // part of it in s that is not needed again: the preparation
	failed   map[string]bool    // steps without a result
	late     map[string]bool    // steps that were killed at the bound of a run with a time limit
}

// progressLine records that a step is over and the length of the samples file at that time.
type progressLine struct {
	Step string  `json:"step"`
	End  int64   `json:"end"`
	Took float64 `json:"took,omitempty"` // s
	// Once is how much of Took was preparation, in s; Failed means that the step has no result; Late, that it
	// exceeded the bound of the run's time.
	Once   float64 `json:"once,omitempty"`
	Failed bool    `json:"failed,omitempty"`
	Late   bool    `json:"late,omitempty"`
}

// create makes a run's directory with its request in it.
func create(dir string, q *Request) (*folder, error) {
	if err := os.MkdirAll(filepath.Join(dir, logsDir), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the run's directory: %w", err)
	}
	text, err := json.MarshalIndent(q, "", " ")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, requestFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot begin a run: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, abandon(dir, err)
	}
	return open(dir)
}

// abandon removes the files that create made for a run that could not begin.
func abandon(dir string, err error) error {
	for _, name := range []string{requestFile, progressFile, record.SamplesFile, logsDir} {
		os.Remove(filepath.Join(dir, name))
	}
	os.Remove(dir) // fails if it contains other files
	if noRoom(err) {
		return fmt.Errorf("%w: nothing was measured; make room and begin again", err)
	}
	return err
}

func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// open opens a run's directory to resume it: samples of an interrupted step are removed.
func open(dir string) (*folder, error) {
	f := &folder{dir: dir, over: map[string]bool{}, took: map[string]float64{}, once: map[string]float64{}, failed: map[string]bool{}, late: map[string]bool{}}
	var err error
	if f.samples, err = os.OpenFile(filepath.Join(dir, record.SamplesFile), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, fmt.Errorf("cannot open the results: %w", err)
	}
	if f.progress, err = os.OpenFile(filepath.Join(dir, progressFile), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		f.samples.Close()
		return nil, fmt.Errorf("cannot open the run's progress: %w", err)
	}
	if err = f.recover(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// recover reads which steps are over, and truncates both files after the last complete one.
func (f *folder) recover() error {
	size, err := f.samples.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	s := bufio.NewScanner(f.progress)
	s.Buffer(nil, 1<<16)
	var kept int64
	for s.Scan() {
		var l progressLine
		if json.Unmarshal(s.Bytes(), &l) != nil || l.Step == "" || l.End < f.end || l.End > size {
			break
		}
		f.over[l.Step], f.end, f.took[l.Step] = true, l.End, l.Took
		f.once[l.Step], f.failed[l.Step], f.late[l.Step] = l.Once, l.Failed, l.Late
		kept += int64(len(s.Bytes())) + 1
	}
	if st, err := f.progress.Stat(); err == nil && kept > st.Size() { // the last line has no newline
		kept = st.Size()
	}
	for file, end := range map[*os.File]int64{f.samples: f.end, f.progress: kept} {
		if err := file.Truncate(end); err != nil {
			return fmt.Errorf("cannot go on in %s: %w", file.Name(), err)
		}
		if _, err := file.Seek(end, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

// add writes a step's samples, then that it is over and its duration.
func (f *folder) add(s step, samples []record.Sample, l progressLine) error {
	lines, err := record.Lines(samples)
	if err != nil {
		return err
	}
	if err := appendWhole(f.samples, f.end, lines); err != nil {
		return explain(err, f.dir)
	}
	f.end += int64(len(lines))
	l.Step, l.End = s.key(), f.end
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := f.progress.Write(append(line, '\n')); err != nil {
		return explain(err, f.dir)
	}
	f.over[l.Step], f.took[l.Step] = true, l.Took
	f.once[l.Step], f.failed[l.Step], f.late[l.Step] = l.Once, l.Failed, l.Late
	return nil
}

// appendWhole writes text at the end of a file, all of it or, if possible, nothing.
func appendWhole(file *os.File, end int64, text []byte) error {
	if _, err := file.Write(text); err != nil {
		file.Truncate(end)
		file.Seek(end, io.SeekStart)
		return err
	}
	return nil
}

// explain adds the remedy if the disk is full.
func explain(err error, dir string) error {
	if noRoom(err) {
		return fmt.Errorf("%w: what was measured is kept; make room and go on with nearmetal bench run --resume %s", err, dir)
	}
	return err
}

// log stores a step's output and returns its path in the directory.
func (f *folder) log(name string, out, errs []byte) (string, error) {
	name = filepath.Join(logsDir, strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '-'
		}
		return r
	}, name)+".log")
	text := out
	if len(errs) > 0 {
		text = append(append(text[:len(text):len(text)], "\n--- standard error\n"...), errs...)
	}
	if err := os.WriteFile(filepath.Join(f.dir, name), text, 0o644); err != nil {
		return "", explain(err, f.dir)
	}
	return name, nil
}

func (f *folder) close() error {
	return errors.Join(f.samples.Close(), f.progress.Close())
}

// LoadRequest reads the request of a run that is to be resumed.
func LoadRequest(dir string) (*Request, error) {
	path := filepath.Join(dir, requestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(dir, oldRequestFile))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a directory of a run that can go on: it has no %s", dir, requestFile)
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the run's request: %w", err)
	}
	var q Request
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fmt.Errorf("%s is damaged (%v): begin a new run", path, err)
	}
	if len(q.Suites) == 0 || len(q.Variants) == 0 || q.Repetitions < 1 {
		return nil, fmt.Errorf("%s is damaged: begin a new run", path)
	}
	return &q, nil
}
