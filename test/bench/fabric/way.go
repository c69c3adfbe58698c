package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// way is one way to send between two processes.
type way struct {
	name    string
	command []string
	env     []string            // in addition to the bench's own
	rename  map[string]string   // figures that get another name
	keep    func(key) bool      // of its figures; nil: all
	timed   string              // not "": the figure is the whole command's time, in ms
	spread  map[string][]string // a figure of this name goes to these columns
	counted []int               // not empty: instructions of a message of these sizes (count.go), not times
}

// most is how long a command may take: it has hung.
const most = 90 * time.Second

// run runs the command once and returns its figures: lines NAME BYTES VALUE.
func (w *way) run() (map[key]float64, error) {
	if len(w.counted) > 0 {
		return w.instructions()
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Env = environ(w.env...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not over after %s", most)
	}
	if err != nil {
		text := strings.TrimSpace(errs.String())
		if len(text) > 600 {
			text = text[:600] + "…"
		}
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	figures := map[key]float64{}
	if w.timed != "" {
		figures[key{w.timed, 0}] = float64(took.Microseconds()) / 1e3
		return figures, nil
	}
	s := bufio.NewScanner(&out)
	for s.Scan() {
		var k key
		var v float64
		if _, err := fmt.Sscan(s.Text(), &k.what, &k.bytes, &v); err != nil {
			return nil, fmt.Errorf("printed %q", s.Text())
		}
		if n, ok := w.rename[k.what]; ok {
			k.what = n
		}
		if w.keep == nil || w.keep(k) {
			figures[k] = v
		}
	}
	return figures, nil
}

// environ is the process's environment, without what would change a provider or an MPI,
// with more entries.
func environ(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		drop := false
		for _, p := range []string{"FI_", "OMPI_", "MPIR_", "UCX_", "I_MPI_", "PMI", "NEARMETAL_REGION="} {
			drop = drop || strings.HasPrefix(e, p)
		}
		if !drop {
			env = append(env, e)
		}
	}
	// A library beneath Debian's libfabric leaves a file *.btr in the working directory when a rank is ended by a signal.
	return append(append(env, "IPATH_NO_BACKTRACE=1"), more...)
}
