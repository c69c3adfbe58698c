package job

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/spec"
)

// UsageError is a command line that makes no sense.
type UsageError struct{ error }

func (e *UsageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Target is what commands are about: a cluster, or one VM of it, written NAME or NAME/VM. A name left out
// is that of $NEARMETAL_CLUSTER, or of the only cluster that runs.
type Target struct{ Cluster, VM string }

// ParseTarget reads NAME, NAME/VM or /VM; "" is the zero Target.
func ParseTarget(s string) Target {
	name, vm, _ := strings.Cut(s, "/")
	if name != "" && spec.CheckName(name) != nil {
		return Target{Cluster: s} // no cluster's name: state.Find returns the error
	}
	return Target{name, vm}
}

// SplitExec splits the arguments of exec, [NAME[/VM] [--]] COMMAND [ARG...], into target and command. The first word
// is a target if a cluster of that name runs (and has that VM), or if "--" follows. Otherwise it is the command. A
// command that has "--" before it (dash is 0, the number of words before "--"), or a cluster named by -c (named), begins with
// the first word. A command line that makes no sense is a UsageError.
func SplitExec(args []string, dash int, named bool) (t Target, command []string, err error) {
	marked := len(args) > 1 && args[1] == "--"
	if dash == 0 || named && !marked {
		return t, args, nil
	}
	name, vm, slash := strings.Cut(args[0], "/")
	if name != "" && spec.CheckName(name) != nil || strings.Contains(vm, "/") || slash && vm == "" {
		return t, args, nil
	}
	r, err := state.Find(name)
	other := err != nil || name == "" // it may well be no target
	if err == nil && vm != "" {
		_, err = r.FindVM(vm)
	}
	if err != nil {
		switch {
		case IsProgram(args[0]):
			return t, args, nil
		case marked || !other:
			return t, nil, err
		case len(args) > 1 && name != "":
			if _, none := state.Find(""); none != nil { // no VM could run the command
				return t, nil, err
			}
		}
		return t, args, nil
	}
	rest := args[1:]
	if marked {
		rest = args[2:]
	} else if len(args) > 2 && args[2] == "--" {
		if _, err := r.FindVM(args[1]); err == nil {
			return t, nil, usagef("a VM of a cluster is NAME/VM: write exec %s/%s -- COMMAND", args[0], args[1])
		}
	}
	if len(rest) == 0 {
		return t, nil, usagef("%s is %s: exec needs a COMMAND after it (exec -- %[1]s runs a program of that name)", args[0], kindOf(vm))
	}
	return Target{name, vm}, rest, nil
}

// kindOf names what a target is.
func kindOf(vm string) string {
	if vm == "" {
		return "a cluster"
	}
	return "a VM"
}

// IsProgram reports whether a word is a program of this host, by PATH or as a path.
func IsProgram(word string) bool {
	if _, err := exec.LookPath(word); err == nil {
		return true
	}
	_, err := os.Stat(word)
	return err == nil
}
