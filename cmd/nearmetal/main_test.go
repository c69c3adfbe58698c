package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nearmetal/internal/site"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestSessions runs the command lines in testdata/*.txt, each after a "$ ", in a directory with the files of
// testdata/files, and compares their output and status. -update writes the answers.
func TestSessions(t *testing.T) {
	sessions, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(sessions) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(varRootWrites, "1") // the same for root and for users
	for _, session := range sessions {
		t.Run(strings.TrimSuffix(filepath.Base(session), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(session)
			if err != nil {
				t.Fatal(err)
			}
			enter(t, filepath.Join(home, "testdata/files"))
			got := replay(t, string(data))
			if *update {
				if err := os.WriteFile(filepath.Join(home, session), []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(data) {
				t.Errorf("%s: got:\n%s", session, firstDifference(got, string(data)))
			}
		})
	}
}

// enter copies files into a new directory and makes that the working directory until the test ends.
func enter(t *testing.T, files string) {
	t.Helper()
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	entries, err := os.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(files, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chdir(home) })
	t.Setenv("NEARMETAL_TEST", "from the caller")
	t.Setenv("NEARMETAL_DEBUG", "")
	// The tests neither see nor run a cluster of the user.
	t.Setenv("NEARMETAL_CLUSTER", "")
	runtime := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(runtime, "config"))
	etc := site.Etc
	site.Etc = filepath.Join(runtime, "etc")
	t.Cleanup(func() { site.Etc = etc })
}

// morePlacement matches the placement in the output of spec show after its first key: its keys are many, and have tests
// of their own.
var morePlacement = regexp.MustCompile(`(?m)^( *"?placement"?: ?{?\n)( +"?strict.*\n)(?:    ".*\n|  [a-z].*\n)*`)

// replay runs the command lines of a session and returns the new session.
func replay(t *testing.T, session string) string {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, line := range strings.Split(session, "\n") {
		words, ok := strings.CutPrefix(line, "$ nearmetal")
		if !ok {
			continue
		}
		var stdout, stderr bytes.Buffer
		status := execute(split(words), strings.NewReader("vms: [{count: 3}]\n"), &stdout, &stderr)
		shown := morePlacement.ReplaceAllString(strings.ReplaceAll(stdout.String(), dir, "DIR"), "$1$2...\n")
		fmt.Fprintf(&out, "%s\n%s", line, shown)
		for _, line := range strings.SplitAfter(strings.ReplaceAll(stderr.String(), dir, "DIR"), "\n") {
			if line != "" {
				out.WriteString("! " + line)
			}
		}
		fmt.Fprintf(&out, "= %d\n\n", status)
	}
	return out.String()
}

// split splits a command line at spaces; "..." quotes them, and may be empty.
func split(line string) []string {
	words := []string{}
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			was := "the end"
			if i < len(w) {
				was = w[i]
			}
			return fmt.Sprintf("line %d: %s\nwant: %s", i+1, g[i], was)
		}
	}
	return "an early end"
}

// everyCommand calls visit with each command.
func everyCommand(visit func(c *cobra.Command)) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		visit(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

// TestHelp checks the parts that every command's help must have.
func TestHelp(t *testing.T) {
	known := map[string]bool{}
	for _, g := range groups {
		known[g.ID] = true
	}
	everyCommand(func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Example == "" {
			t.Errorf("%s: needs a short description without a full stop, and examples", c.CommandPath())
		}
		if len(path) == 2 && !known[c.GroupID] {
			t.Errorf("%s: no group %q", c.CommandPath(), c.GroupID)
		}
		if len(path) == 1 || c.Hidden {
			return
		}
		var stdout, stderr bytes.Buffer
		if status := execute(append(path[1:], "--help"), nil, &stdout, &stderr); status != 0 || stderr.Len() > 0 {
			t.Errorf("%s --help: %d, %s", c.CommandPath(), status, stderr.String())
		}
		for _, line := range strings.Split(stdout.String(), "\n") {
			if len(line) > helpWidth {
				t.Errorf("%s --help: a line of %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented by two spaces", c.CommandPath(), line)
			}
		}
	})
}

// TestFlagValues checks that a flag names its value, in capitals or as its choices, and not by a Go type.
func TestFlagValues(t *testing.T) {
	everyCommand(func(c *cobra.Command) {
		for p := c; p != nil; p = p.Parent() {
			if p.Hidden {
				return
			}
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if f.Value.Type() != "bool" && !f.Hidden && !strings.Contains(name, "|") && !regexp.MustCompile(`^[A-Z]`).MatchString(name) {
				t.Errorf("%s: --%s takes a %q", c.CommandPath(), f.Name, name)
			}
		})
	})
}

// TestUnknownFlags checks that each command refuses a flag that it does not have.
func TestUnknownFlags(t *testing.T) {
	everyCommand(func(c *cobra.Command) {
		if c.DisableFlagParsing {
			return
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--no-such-flag")
		var stdout, stderr bytes.Buffer
		status := execute(args, nil, &stdout, &stderr)
		if status != exitUsage || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 ||
			!strings.HasPrefix(stderr.String(), "nearmetal: unknown flag --no-such-flag") {
			t.Errorf("%q: status %d, %q, %q", args, status, stdout.String(), stderr.String())
		}
	})
}

// TestReferenceIsFresh fails if a command was changed and the page was not generated again.
func TestReferenceIsFresh(t *testing.T) {
	var page bytes.Buffer
	writeReference(&page, newRootCommand())
	file := "../../docs/reference/commands.md"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, page.Bytes()) {
		t.Errorf("%s is stale: run make docs: %s", file, firstDifference(page.String(), string(old)))
	}
}

func TestGenerators(t *testing.T) {
	dir := t.TempDir()
	man, page := filepath.Join(dir, "man/man1"), filepath.Join(dir, "commands.md")
	for _, args := range [][]string{{"man", man}, {"reference", page}} {
		var stdout, stderr bytes.Buffer
		if status := execute(args, nil, &stdout, &stderr); status != 0 || stdout.Len()+stderr.Len() > 0 {
			t.Fatalf("%q: status %d, %s", args, status, stderr.String())
		}
	}
	text, err := os.ReadFile(filepath.Join(man, "nearmetal-spec-validate.1"))
	if err != nil || !bytes.Contains(text, []byte(`.TH "NEARMETAL-SPEC-VALIDATE" "1"`)) || !bytes.Contains(text, []byte("EXAMPLE")) {
		t.Errorf("%v: %.300s", err, text)
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d manual pages, %v", len(pages), err)
	}
	cited := regexp.MustCompile(`nearmetal[a-z-]*\(1\)`)
	docs := regexp.MustCompile(`share/doc/nearmetal/([a-z/]+\.md)`)
	for _, p := range pages {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		at := -1
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLE"} {
			i := bytes.Index(text, []byte("\n.SH "+section+"\n"))
			if i <= at {
				t.Errorf("%s: no %s, or not in its place", filepath.Base(p), section)
			}
			at = i
		}
		if bytes.Contains(text, []byte(" docs/")) || bytes.Contains(text, []byte("(docs/")) {
			t.Errorf("%s names a page of the source tree", filepath.Base(p))
		}
		if bytes.Contains(text, []byte("[=false]")) {
			t.Errorf("%s: a flag without a value is shown with one", filepath.Base(p))
		}
		for _, name := range cited.FindAllString(strings.ReplaceAll(string(text), `\-`, "-"), -1) {
			if _, err := os.Stat(filepath.Join(man, strings.TrimSuffix(name, "(1)")+".1")); err != nil {
				t.Errorf("%s cites %s, which is not there", filepath.Base(p), name)
			}
		}
		for _, m := range docs.FindAllSubmatch(text, -1) {
			if _, err := os.Stat("../../docs/" + string(m[1])); err != nil {
				t.Errorf("%s cites %s: %v", filepath.Base(p), m[0], err)
			}
		}
	}
	// The page of a command explains its statuses: those of programs if it runs one, findings if it has any.
	for name, want := range map[string]string{"run": "the program's", "exec": "the program's", "check": "A check fails", "bench-compare": "B is worse than A", "up": "Success."} {
		text, err := os.ReadFile(filepath.Join(man, "nearmetal-"+name+".1"))
		_, status, _ := strings.Cut(string(text), ".SH EXIT STATUS\n")
		status, _, _ = strings.Cut(status, "\n.SH ")
		if err != nil || !strings.Contains(status, want) || strings.Contains(status, "the program") != strings.Contains("run exec", name) {
			t.Errorf("%s: %v, %s", name, err, status)
		}
	}
	known := map[string]bool{}
	everyCommand(func(c *cobra.Command) {
		known[c.CommandPath()] = true
		if strings.Contains(strings.ReplaceAll(c.Long, "\n", " "), "exit status") && statusFindings[c.CommandPath()] == "" && !runsPrograms[c.CommandPath()] {
			t.Errorf("%s: its text speaks of the exit status, its page has no more than all", c.CommandPath())
		}
	})
	for name := range statusFindings {
		if !known[name] {
			t.Errorf("no command %q", name)
		}
	}
	if text, err := os.ReadFile(filepath.Join(man, "nearmetal-run.1")); err != nil || !bytes.Contains(text, []byte("\n  an MPI launcher")) {
		t.Errorf("%v: the list of run is no list", err)
	}
	if text, err := os.ReadFile(filepath.Join(man, "nearmetal-check.1")); err != nil || !bytes.Contains(text, []byte("[=NAME/VM]")) {
		t.Errorf("%v: a flag's value has quotes", err)
	}
	if _, err := os.Stat(filepath.Join(man, "nearmetal-man.1")); err == nil {
		t.Error("a hidden command has a manual page")
	}
}

// Output that cannot be written is an error of any command that prints it.
func TestFullOutput(t *testing.T) {
	conf := t.TempDir()
	t.Setenv("NEARMETAL_RUNTIME_DIR", t.TempDir())
	for _, words := range []string{
		"--help", "version", "version --json", "completion bash", "topology", "topology --json", "plan", "plan --explain",
		"check --only limits.nofile --json", "check --only limits.nofile --all", "spec show", "spec templates", "ps", "ps --json", "device list", "bench list",
		"slurm example --node n1 --dir " + conf, "hostfile --help", "explain ../../internal/explain/testdata/kubevirt.xml",
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var normal, stderr bytes.Buffer
		if execute(strings.Fields(words), strings.NewReader(""), &normal, io.Discard); normal.Len() == 0 {
			t.Logf("nearmetal %s prints nothing here", words)
			continue
		}
		status := execute(strings.Fields(words), strings.NewReader(""), full, &stderr)
		if status != exitFailure || !strings.Contains(stderr.String(), "/dev/full: no space left on device\n") {
			t.Errorf("nearmetal %s: status %d, %q", words, status, stderr.String())
		}
		full.Close()
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_nearmetal", "zsh": "#compdef nearmetal", "fish": "complete -c nearmetal"} {
		var stdout, stderr bytes.Buffer
		if status := execute([]string{"completion", shell}, nil, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), mark) {
			t.Errorf("%s: status %d, %s", shell, status, stderr.String())
		}
	}
}

// TestReport compares errors with their output and status.
func TestReport(t *testing.T) {
	ran := &cobra.Command{Use: "nearmetal"}
	failed := errors.New("it failed\nbadly \x1b[2J")
	for _, test := range []struct {
		err    error
		status int
		shown  string
	}{
		{nil, 0, ""},
		{exitStatus(0), 0, ""},
		{&runError{failed}, exitFailure, "nearmetal: it failed badly ?[2J\n"},
		{failed, 2, "nearmetal: it failed badly ?[2J (see nearmetal --help)\n"},
		{&runError{usagef("a and b")}, 2, "nearmetal: a and b (see nearmetal --help)\n"},
		{&runError{exitStatus(7)}, 7, ""},
		{&runError{fmt.Errorf("in vm0: %w", exitStatus(7))}, 7, ""},
		{&runError{exitSignal(syscall.SIGTERM)}, 143, ""},
		{&runError{&ExitError{Code: 127, Err: errors.New("no such command")}}, 127, "nearmetal: no such command\n"},
		{&runError{errorList{errors.New("a"), errors.New("b")}}, exitFailure, "nearmetal: a\nnearmetal: b\n"},
		{&runError{errors.Join(errors.New("a"), errors.New("b"), errors.New("a"))}, exitFailure, "nearmetal: a\nnearmetal: b\n"},
		{&runError{fmt.Errorf("x: %w", errors.Join(errors.New("a"), errors.New("b")))}, exitFailure, "nearmetal: x: a b\n"},
		{&runError{&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}}, 141, ""},
		{&runError{&os.PathError{Op: "write", Path: "/dev/full", Err: syscall.EPIPE}}, exitFailure, "nearmetal: write /dev/full: broken pipe\n"},
	} {
		var stderr bytes.Buffer
		if status := report(&stderr, ran, test.err); status != test.status || stderr.String() != test.shown {
			t.Errorf("%v: status %d, %q", test.err, status, stderr.String())
		}
	}
}

func TestPanicIsNotShownRaw(t *testing.T) {
	old := commands
	defer func() { commands = old }()
	commands = []func() *cobra.Command{func() *cobra.Command {
		return &cobra.Command{Use: "burst", GroupID: groupSelf, RunE: func(*cobra.Command, []string) error {
			var none []int
			_ = none[len(os.Args)+5]
			return nil
		}}
	}}
	for debug, lines := range map[string]int{"": 1, "1": 10} {
		t.Setenv("NEARMETAL_DEBUG", debug)
		var stdout, stderr bytes.Buffer
		status := execute([]string{"burst"}, nil, &stdout, &stderr)
		if n := strings.Count(stderr.String(), "\n"); status != exitFailure || n < lines || debug == "" && n > 1 ||
			!strings.HasPrefix(stderr.String(), "nearmetal: internal error: runtime error: index out of range") {
			t.Errorf("NEARMETAL_DEBUG=%s: status %d, %s", debug, status, stderr.String())
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]string{
		"/a": "{/a  rw}", "/a:ro": "{/a  ro}", "a:rw": "{a  rw}", "/a:/b": "{/a /b rw}", "/a:/b:ro": "{/a /b ro}", ".": "{.  rw}", "ro": "{ro  rw}",
	} {
		if s, err := parseShare(text); err != nil || fmt.Sprint(s) != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", ":", ":/b", "/a:b", "/a:/b:/c", "/a:/b:rx", "/a:/b:ro:ro", "/a:/proc", "/sys", "/a:", "/a\nb", "/a:/"} {
		if s, err := parseShare(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}

func FuzzParseShare(f *testing.F) {
	for _, text := range []string{"/a:/b:ro", "a", "::", "/a:rw:ro"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseShare(text); err == nil && (s.Path == "" || s.Mode == "" || strings.ContainsAny(s.Path+s.Target, "\n\x00:")) {
			t.Errorf("%q: %+v", text, s)
		}
	})
}

// An empty value is not the default: a script with an unset variable gets an error.
func TestEmptyValues(t *testing.T) {
	n := 0
	everyCommand(func(c *cobra.Command) {
		for p := c; p != nil; p = p.Parent() {
			if p.Hidden {
				return
			}
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			n++
			if err := f.Value.Set(""); err == nil {
				t.Errorf("%s: --%s '' is accepted", c.CommandPath(), f.Name)
			}
		})
	})
	if n < 100 {
		t.Errorf("only %d flags", n)
	}
	for _, line := range []string{"run --hosts= -- hostname", "run --kernel= -- hostname", "check --vm=", "exec --cluster= hostname", "plan --host="} {
		var stdout, stderr bytes.Buffer
		status := execute(strings.Fields(line), nil, &stdout, &stderr)
		if status != exitUsage || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "is empty") {
			t.Errorf("%s: status %d, %q, %q", line, status, stdout.String(), stderr.String())
		}
	}
}

// An error is in plain words, without those of Go's libraries and of system calls.
func TestPlainErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("run.json", "root:x:0")
	write("request.json", "root:x:0")
	write("cut.json", `{"a":`)
	write("long", strings.Repeat("x", 200000))
	for _, name := range []string{"empty", "e.tar.gz", "e.tar", "e.machine", "e.xml"} {
		write(name, "")
	}
	for _, name := range []string{"l.tar", "l.machine"} {
		write(name, strings.Repeat("x", 200000))
	}
	raw := regexp.MustCompile(`\b(open|read|l?stat) /|context (deadline|canceled)|bufio|strconv|unmarshal|EOF|invalid character|end of JSON|archive/tar|<nil>`)
	for _, line := range []string{
		"spec validate D/none.yaml", "spec validate D", "spec show D/none", "spec validate D/none D", "run -f D -- hostname",
		"spec import --vhpc D/none", "spec import --vhpc D", "plan --match D/none", "plan --match D", "plan --match D/cut.json",
		"verify --flavor D", "topology --hwloc D", "topology --hwloc D/none", "topology --hwloc D/empty",
		"topology gather --root D/none D/o.tar.gz", "plan --move D/run.json --to D", "plan --move D/empty --to D",
		"topology --root D/e.tar", "topology --root D/e.tar.gz", "topology --root D/e.machine", "topology --root D/e.xml",
		"topology --root D/l.tar", "topology --root D/l.machine", "traffic D", "traffic D/none", "check --fleet D/long",
		"report D", "bench compare D D", "bench run --resume D", "slurm doctor --conf D/long", "explain D", "explain D/long",
		"bench run --repetitions x", "report --tolerance x D", "up --boot-timeout x", "kernel fetch D", "bench list --suite D",
	} {
		line = strings.ReplaceAll(line, "D", dir)
		var stdout, stderr bytes.Buffer
		status := execute(strings.Fields(line), nil, &stdout, &stderr)
		if status == 0 || strings.Contains(stderr.String(), "panic") || raw.MatchString(stderr.String()) {
			t.Errorf("%s: status %d: %s", line, status, stderr.String())
		}
	}
	for line, want := range map[string]string{
		"cannot read the cluster file: open a b.yaml: no such file or directory": "cannot read the cluster file: a b.yaml: no such file or directory",
		"cannot open x: permission denied":                                       "cannot open x: permission denied",
		"write /dev/full: no space left on device":                               "write /dev/full: no space left on device",
		"VM vm0: QEMU did not come up: context deadline exceeded":                "VM vm0: QEMU did not come up: it took too long",
		`f.json: invalid character 'r' looking for beginning of value`:           `f.json: unexpected character 'r'`,
		"/a: open /a: is a directory":                                            "/a: is a directory",
		`no ssh here: exec: "ssh": executable file not found in $PATH`:           `no ssh here: "ssh" is not in PATH`,
		"dial tcp 10.0.0.1:5000: connect: connection refused":                    "10.0.0.1:5000: connection refused",
		"dial tcp: lookup nosuch on 10.0.0.1:53: no such host":                   "there is no host nosuch",
		"read tcp 10.0.0.2:4->10.0.0.1:5000: i/o timeout":                        "10.0.0.1:5000: no answer in time",
		"the EOF marker is missing":                                              "the EOF marker is missing",
	} {
		if got := plainly(line); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
