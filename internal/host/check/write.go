package check

import (
	"context"
	"fmt"
)

// Write is one write that fixes a row on a running kernel.
type Write struct {
	File  string `json:"file,omitempty"`  // absolute, below /sys or /proc/sys
	Value string `json:"value,omitempty"` // without the newline
	// Before is the value when Fixes read it.
	Before string `json:"before,omitempty"`
	// PID: the write sets a process's limit on locked memory to unlimited, instead of a file.
	PID  int    `json:"pid,omitempty"`
	Name string `json:"name,omitempty"` // of the process
}

// String returns the write as a shell command.
func (w Write) String() string {
	if w.PID != 0 {
		return fmt.Sprintf("prlimit --pid %d --memlock=unlimited:unlimited  # %s", w.PID, w.Name)
	}
	return fmt.Sprintf("echo %s >%s", w.Value, w.File)
}

// Fix fixes a row on this host.
type Fix struct {
	Row    Result
	Writes []Write // none: it needs a reboot, firmware or another program, see Row.Fix
	// AtLoad are parameters that modules read when they are loaded next.
	AtLoad []Write
}

// Fixes returns the fixes of the rows that warn or fail, in their order.
func Fixes(ctx context.Context, o Options, r *Report) ([]Fix, error) {
	f, err := newFacts(ctx, o)
	if err != nil {
		return nil, err
	}
	defer f.close()
	byID := map[string]*Row{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	var fixes []Fix
	for _, res := range r.Rows {
		row := byID[res.ID]
		if row == nil || res.Status != Warn && res.Status != Fail {
			continue
		}
		fix := Fix{Row: res}
		if row.writes != nil {
			for _, w := range row.writes(f) {
				if w.PID == 0 {
					w.Before = chosen(f.line(w.File))
				}
				fix.Writes = append(fix.Writes, w)
			}
		}
		if row.load != nil {
			fix.AtLoad = row.load(f)
		}
		fixes = append(fixes, fix)
	}
	return fixes, nil
}

// parameters returns the load of a row: the existing files of modules' parameters that have another value.
func parameters(value string, files ...string) func(*facts) []Write {
	return func(f *facts) []Write {
		var list []Write
		for _, file := range files {
			if v := f.line(file); v != "" && v != value {
				list = append(list, Write{File: file, Value: value, Before: v})
			}
		}
		return list
	}
}
