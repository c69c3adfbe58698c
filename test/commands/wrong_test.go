package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// wrongInputs are made in a directory by wrongFiles, or are not files at all.
var wrongInputs = []string{
	"",                          // nothing, as an unset variable leaves it
	"nosuch",                    // no file, no cluster, no word that is known
	"nosuch.yml",                // the same with a name that files have
	"folder",                    // a directory
	"void",                      // an empty file
	"noise",                     // a file that is not text
	"long",                      // a file of 4 MiB in one line
	"locked",                    // a file that may not be read
	"\xff\xfe",                  // not UTF-8
	"a\x1b[2J\nb",               // what would clear a terminal
	strings.Repeat("x", 100000), // longer than any name
	"-1",
	"99999999999999999999999",
}

// wrongFiles makes the files of wrongInputs in a directory that the user who runs the commands may write to.
func wrongFiles(t *testing.T, dir string, uid int) {
	t.Helper()
	for name, data := range map[string]string{"void": "", "noise": "\x7fELF\x00\xff\xfe{[\x00", "long": strings.Repeat("a", 4<<20), "locked": "a: b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o755), os.Chmod(filepath.Join(dir, "locked"), 0))
	for _, name := range []string{"", "folder"} {
		err = errors.Join(err, os.Chown(filepath.Join(dir, name), uid, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// commandLine is a command with what its help says that it takes.
type commandLine struct {
	path     []string
	operands int      // most that it takes; some of them may be left out
	flags    []string // those with a value
}

var (
	operand   = regexp.MustCompile(`^\[?[A-Z]`)
	valueFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*) [^ ]`)
)

// commandLines walks the program's commands.
func commandLines(t *testing.T, path ...string) []commandLine {
	t.Helper()
	out, _, code := answer(t, append(append([]string{"__complete"}, path...), "")...)
	help, errs, status := answer(t, append(path, "--help")...)
	if code != 0 || status != 0 {
		t.Fatalf("%q: %d, %d, %s", path, code, status, errs)
	}
	if strings.Contains(help, " COMMAND\n") && strings.Contains(help, "\nCommands:\n") || len(path) == 0 {
		var list []commandLine
		for _, line := range strings.Split(out, "\n") {
			if name, _, ok := strings.Cut(line, "\t"); ok {
				list = append(list, commandLines(t, append(path[:len(path):len(path)], name)...)...)
			}
		}
		return list
	}
	c := commandLine{path: path}
	use := strings.SplitN(help, "Usage:\n", 2)[1]
	use, _, _ = strings.Cut(use, "\n")
	for _, word := range strings.Fields(use)[1+len(path):] {
		if operand.MatchString(word) {
			c.operands++
		}
	}
	for _, m := range valueFlag.FindAllStringSubmatch(help, -1) {
		c.flags = append(c.flags, m[1])
	}
	return []commandLine{c}
}

// goTalk is what an error says that no person wrote.
var goTalk = regexp.MustCompile(`goroutine|panic|internal error|strconv\.|[^.]yaml: |[^.]json: |%!|executable file not found|\b(open|lstat|stat|mkdir|readdirent|fork/exec) |context deadline|0xc0|<nil>|unexpected EOF|invalid argument "`)

// TestWrongInputs runs every command with what is wrong in each of its places. Unless the word is a right one there, it ends
// with 1 or 2, one line says why, and nothing is left behind.
func TestWrongInputs(t *testing.T) {
	uid := os.Getuid()
	if uid == 0 {
		uid = 65534 // nothing of the host changes
	}
	dir := t.TempDir()
	self, err := os.ReadFile(program)
	for _, d := range []string{filepath.Dir(dir), dir} {
		err = errors.Join(err, os.Chmod(d, 0o755))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "nearmetal"), self, 0o755)); err != nil {
		t.Fatal(err)
	}
	list := commandLines(t)
	if len(list) < 50 {
		t.Fatalf("%d commands", len(list))
	}
	for _, c := range list {
		t.Run(strings.Join(c.path, " "), func(t *testing.T) {
			t.Parallel()
			home := filepath.Join(dir, strings.Join(c.path, "-"))
			work := filepath.Join(home, "work")
			for _, d := range []string{home, work, filepath.Join(home, "run")} {
				if err := errors.Join(os.Mkdir(d, 0o700), os.Chown(d, uid, -1)); err != nil {
					t.Fatal(err)
				}
			}
			wrongFiles(t, work, uid)
			config := filepath.Join(home, ".config/nearmetal")
			err := os.MkdirAll(config, 0o755)
			if err = errors.Join(err, os.WriteFile(filepath.Join(config, "config.yaml"), []byte("home: none\n"), 0o644)); err != nil {
				t.Fatal(err) // without it up and run warn of the home
			}
			user := stranger{filepath.Join(dir, "nearmetal"), home, work, uid}
			for _, wrong := range wrongInputs {
				for i := 0; i < c.operands; i++ {
					words := c.words()
					words[i] = wrong
					user.try(t, wrong, i > 0 && c.program(), append(append(c.path[:len(c.path):len(c.path)], "--"), words...))
				}
				for _, f := range c.flags {
					args := append(c.path[:len(c.path):len(c.path)], "--"+f+"="+wrong, "--")
					user.try(t, wrong, false, append(args, c.words()...))
				}
			}
		})
	}
}

// words are words for all operands of a command, none of which is known.
func (c *commandLine) words() []string {
	words := make([]string, c.operands)
	for i := range words {
		words[i] = "unknown"
	}
	return words
}

// program reports whether a command runs a program of its user's, whose arguments may be anything.
func (c *commandLine) program() bool {
	return slices.Contains([]string{"run", "exec", "rsh"}, c.path[0])
}

// stranger is a user without rights, programs and VMs.
type stranger struct {
	program, home, work string
	uid                 int
}

// try runs a command line with something wrong in it; free says that its word may be anything.
func (s *stranger) try(t *testing.T, wrong string, free bool, args []string) {
	t.Helper()
	before := listing(t, s.work)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.work
	cmd.Env = []string{"HOME=" + s.home, "PATH=" + s.work, "XDG_RUNTIME_DIR=" + filepath.Join(s.home, "run"), "LIBVIRTD_PATH=/nonexistent/libvirtd"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal to ask on
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.uid)}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	errs, code := stderr.String(), cmd.ProcessState.ExitCode()
	after := listing(t, s.work)
	bad := func(what string) { t.Errorf("%s: %s (%d): %.600q", shown(args), what, code, errs) }
	if code == 0 {
		if wrong == "" && !free {
			bad("an empty word is taken")
		}
		for name := range after {
			if !before[name] {
				os.RemoveAll(filepath.Join(s.work, name))
			}
		}
		return
	}
	if code == 3 && stdout.Len() > 0 && errs == "" {
		return // findings, not an error: slurm doctor, check
	}
	runs := slices.Contains([]string{"run", "exec", "rsh"}, args[0])
	switch {
	case ctx.Err() != nil:
		bad("did not end")
	case code != 2 && code != 3 && code != 125 && !(runs && (code == 127 || code == 255)):
		bad("status")
	case wrong == "" && code != 2 && !free:
		bad("an empty word is no wrong usage")
	case len(after) != len(before):
		bad("files are left")
	}
	switch {
	case !strings.HasPrefix(errs, "nearmetal: ") || strings.Count(errs, "\n") != 1:
		bad("not one line")
	case len(errs) > 1000 || !utf8.ValidString(errs) || strings.ContainsAny(errs, "\x1b\x00"):
		bad("long, or no text")
	case goTalk.MatchString(errs):
		bad("raw")
	}
}

// listing are the names of the files in a directory.
func listing(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// shown are args as a message shows them.
func shown(args []string) string {
	var words []string
	for _, a := range args {
		words = append(words, fmt.Sprintf("%.20q", a))
	}
	return strings.Join(words, " ")
}
