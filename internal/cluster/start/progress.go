package start

import (
	"errors"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/terminal"
)

// Progress is a step of a start, which the owner reports to the process that waits for it: one JSON object per line.
type Progress struct {
	Notice string `json:"notice,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Done   int    `json:"done,omitempty"`
	Total  int    `json:"total,omitempty"`
	Error  string `json:"error,omitempty"`
	// Console goes with Error; see state.VMError.
	Console []string `json:"console,omitempty"`
}

// Report returns events that call send.
func Report(send func(Progress)) Events {
	return Events{
		Notice: func(line string) { send(Progress{Notice: line}) },
		Stage:  func(name string, done, total int) { send(Progress{Stage: name, Done: done, Total: total}) },
	}
}

// Failed returns the report of a start that failed with err.
func Failed(err error) Progress {
	p := Progress{Error: terminal.PlainError(err)}
	var boot *state.VMError
	if errors.As(err, &boot) {
		p.Error, p.Console = terminal.PlainError(boot.Err), boot.Console
	}
	return p
}
