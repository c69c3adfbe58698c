package launch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// scriptBytes is how much of a script is read.
const scriptBytes = 256 << 10

var (
	shellName = lazyregexp.New(`^(?:ba|da|k|mk|z|a)?sh$`)
	// A launcher's name where a command may stand: not within a word, nor as the name of an option, a
	// variable or a file with an ending.
	inShell = lazyregexp.New(`(?:^|[\s;&|({` + "`" + `"'/])((?:mpirun|mpiexec|orterun|prterun)(?:\.(?:hydra|openmpi|mpich|gforker))?)(?:[\s;&|)}` + "`" + `"'\\]|$)`)
	// In other languages a command stands in quotes.
	inQuotes = lazyregexp.New(`["'](?:/[^"'\s]*/)?((?:mpirun|mpiexec|orterun|prterun)(?:\.(?:hydra|openmpi|mpich|gforker))?)["'\s]`)
)

// Calls returns the MPI launcher that the script run by argv calls, as the script names it, and the
// script; name is "" where there is none. A script is a file that begins with #!, a file that a shell
// is given, or the text of its option -c. Programs are looked up by lookPath (exec.LookPath does).
// The script's text is only searched: nothing is run.
func Calls(argv []string, lookPath func(string) (string, error)) (name, script string) {
	if len(argv) == 0 {
		return "", ""
	}
	file := argv[0]
	isShell := shellName().MatchString(filepath.Base(file))
	if isShell {
		var text string
		if file, text = shellScript(argv[1:]); file == "" {
			return launcherIn([]byte(text), true), "the script"
		}
	} else if path, err := lookPath(file); err == nil {
		file = path
	}
	text := head(file)
	if !isShell {
		first, _, _ := bytes.Cut(text, []byte("\n"))
		interpreter, ok := strings.CutPrefix(string(first), "#!")
		if !ok {
			return "", ""
		}
		for _, word := range strings.Fields(interpreter) { // #!/usr/bin/env bash
			isShell = isShell || shellName().MatchString(filepath.Base(word))
		}
	}
	return launcherIn(text, isShell), filepath.Base(file)
}

// shellScript returns what a shell with these arguments runs: a file, or the text of -c.
func shellScript(args []string) (file, text string) {
	command := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case command && !strings.HasPrefix(a, "-"):
			return "", a
		case a == "-o" || a == "-O" || a == "--rcfile" || a == "--init-file":
			i++
		case strings.HasPrefix(a, "--"):
		case strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+"):
			command = command || strings.Contains(a, "c")
		default:
			return a, ""
		}
	}
	return "", ""
}

// head returns the beginning of a regular file, nil where it cannot be read.
func head(path string) []byte {
	if fi, err := os.Stat(path); err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, scriptBytes))
	return b
}

// launcherIn returns the first launcher that a script calls, comments left out.
func launcherIn(text []byte, shell bool) string {
	find := inQuotes()
	if shell {
		find = inShell()
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			continue
		}
		if shell {
			if code, _, ok := bytes.Cut(line, []byte(" #")); ok {
				line = code
			}
		}
		if m := find.FindSubmatch(line); m != nil {
			return string(m[1])
		}
	}
	return ""
}
