// Command nearmetal runs MPI programs inside virtual machines. Each of its commands has a file here, which reads
// arguments and shows results; the packages below internal do the work. The literals of small commands are similar, and
// each is written out, so that a command's whole text is in its file.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	_ "nearmetal/internal/backend/all"
	"nearmetal/internal/remote"
	"nearmetal/internal/session"
	"nearmetal/internal/text"
)

func main() {
	args := os.Args[1:]
	// MPI launchers accept the path of one program as their remote shell.
	if filepath.Base(os.Args[0]) == "nearmetal-rsh" {
		args = append([]string{"rsh"}, args...)
	}
	session.KeepClosed()
	remote.Keep()
	os.Exit(execute(args, os.Stdin, os.Stdout, os.Stderr))
}

// execute runs the command line args and returns the status to exit with.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	defer func() {
		if cause := recover(); cause != nil {
			status = reportPanic(stderr, cause)
		}
	}()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &output{w: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	ran, err := root.ExecuteC()
	if err == nil {
		if err = out.failed(); err != nil {
			err = &runError{err}
		}
	}
	return report(stderr, ran, err)
}

// reportPanic reports a bug in nearmetal. The kernel releases the resources of the VMs: they are children that die with
// this process.
func reportPanic(stderr io.Writer, cause any) int {
	fmt.Fprintf(stderr, "nearmetal: internal error: %s; please report it with the output of the same command under NEARMETAL_DEBUG=1\n",
		text.Clean(fmt.Sprint(cause)))
	if debugging() {
		stderr.Write(debug.Stack())
	}
	return exitFailure
}
