package launch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// scriptBytes is how many bytes of a script are read.
const scriptBytes = 256 << 10

var (
	shellName = lazyregexp.New(`^(?:ba|da|k|mk|z|a)?sh$`)
	// inShell matches a launcher's name where a command may be: not within a word, nor as the name of an option, a
	// variable or a file with an extension.
	inShell = lazyregexp.New(`(?:^|[\s;&|({` + "`" + `"'/])((?:mpirun|mpiexec|orterun|prterun)(?:\.(?:hydra|openmpi|mpich|gforker))?)(?:[\s;&|)}` + "`" + `"'\\]|$)`)
	// inQuotes matches a launcher in other languages, where a command is in quotes.
	inQuotes = lazyregexp.New(`["'](?:/[^"'\s]*/)?((?:mpirun|mpiexec|orterun|prterun)(?:\.(?:hydra|openmpi|mpich|gforker))?)["'\s]`)
)

// Calls returns the MPI launcher that the script run by argv calls, by its name in the script, and the script; name
// is "" if the script calls none. A script is a file that begins with #!, a file argument of a shell, or the text of
// its option -c. Programs are looked up by lookPath (exec.LookPath does). The script's text is only searched: nothing
// is run.
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

// shellScript returns the program of a shell with these arguments: a file, or the text of -c.
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

// head returns the beginning of a regular file, or nil if it cannot be read.
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

// launcherIn returns the first launcher that a script calls outside comments.
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
