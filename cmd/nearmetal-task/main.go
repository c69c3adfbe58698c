// Command nearmetal-task replaces a task of a Slurm step and runs the task's command in a VM of the job; the SPANK
// plugin starts it once per rank. It is a separate program that contains little more than package rank: starting
// nearmetal costs four times as much, and 64 ranks on a node start at the same moment.
package main

import (
	"fmt"
	"io"
	"os"

	_ "nearmetal/internal/backend/all"
	"nearmetal/internal/session"
	"nearmetal/internal/slurm/rank"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// exitFailure is the status if the wrapper itself failed, the same as nearmetal's: the command's own is often 1.
const exitFailure = 125

func main() {
	session.KeepClosed()
	os.Exit(run(os.Args, session.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run runs the task and returns the status to exit with. If a signal ended the command, it does not return: this
// process ends by the same signal.
func run(args []string, s session.Streams) (status int) {
	defer func() {
		if cause := recover(); cause != nil {
			say(s.Err, fmt.Sprintf("internal error: %v; please report it", cause))
			status = exitFailure
		}
	}()
	st, err := rank.Run(args, s)
	if err != nil {
		for _, line := range terminal.ErrorLines(err) {
			say(s.Err, line)
		}
		return exitFailure
	}
	if st.Message != "" {
		say(s.Err, st.Message)
	}
	if st.Signal != 0 {
		rank.Die(st.Signal)
		return 128 + int(st.Signal)
	}
	return st.Code
}

func say(w io.Writer, line string) { fmt.Fprintf(w, "nearmetal: %s\n", text.Clean(line)) }
