package cluster

import (
	"strings"
	"time"

	"nearmetal/internal/backend"
)

// VMError is the end of a VM that nobody asked for, or its failure to become ready.
type VMError struct {
	Err     error
	Console []string // the last lines of the VM's console
}

func (e *VMError) Error() string { return e.Err.Error() }

func (e *VMError) Unwrap() error { return e.Err }

// Lines are the error and the console's last lines, for a person.
func (e *VMError) Lines() []string {
	lines := []string{e.Err.Error()}
	if len(e.Console) > 0 {
		lines[0] += "; its console's last lines:"
	}
	for _, l := range e.Console {
		lines = append(lines, "  "+l)
	}
	return lines
}

// lastLines are the last n lines of a VM's console; of one whose kernel panicked, the n
// lines from there on, for what follows it are only registers.
func lastLines(i backend.Instance, n int) []string {
	return fromPanic(i.Console(100), n)
}

func fromPanic(lines []string, n int) []string {
	from := max(0, len(lines)-n)
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "Kernel panic") {
			from = min(from, i)
			break
		}
	}
	return lines[from:min(from+n, len(lines))]
}

// explainGrace bounds how long the error of a channel waits for its VM's end.
const explainGrace = 3 * time.Second

// explain returns the end of the console of a VM whose channel has ended, for the error that
// ends its streams (which holds 1,024 bytes at most). The VM's own end is awaited for a moment, until it is
// noted: what the VM said last may still be on the way, and whoever gets that error finds in Lost why the VM ended.
func explain(i backend.Instance, noted <-chan struct{}) string {
	t := time.NewTimer(explainGrace)
	defer t.Stop()
	select {
	case <-noted:
	case <-t.C:
	}
	lines := lastLines(i, 6)
	if len(lines) == 0 {
		return ""
	}
	return "its console's last lines:\n  " + strings.Join(lines, "\n  ")
}
