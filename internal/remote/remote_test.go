package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shell puts into PATH an ssh that has this machine's shell run the command, as sshd would on another host. test/e2e
// uses the real ssh. start is the output of the shell's startup files.
func shell(t *testing.T, start string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := "#!/bin/sh\n" + start + "\nwhile [ \"$1\" != -- ]; do shift; done\nexec /bin/sh -c \"$3\"\n"
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	return dir
}

func program(t *testing.T, text string) *Files {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"p": text, "lib": "a library"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := NewFiles(File{Local: dir + "/p", Remote: "bin/p"}, File{Local: dir + "/lib", Remote: "lib/x/lib"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const echo = "#!/bin/sh\necho \"$1 $(cat \"${0%/*}/../lib/x/lib\")\"\nexec cat\n"

// The program and its files are copied only if they are missing or changed.
func TestStart(t *testing.T) {
	dir := shell(t, "echo Welcome; echo to this host")
	files := program(t, echo)
	run := func() {
		t.Helper()
		s, err := Start(context.Background(), "h", files, "word")
		if err != nil {
			t.Fatal(err)
		}
		if line, err := s.Line(100); err != nil || line != "word a library" {
			t.Errorf("%q, %v", line, err)
		}
		s.Write([]byte("there and back\n"))
		if line, err := s.Line(100); err != nil || line != "there and back" {
			t.Errorf("%q, %v", line, err)
		}
		s.Close()
	}
	run()
	copies, _ := filepath.Glob(dir + "/cache/nearmetal/programs/*/bin/p")
	if len(copies) != 1 {
		t.Fatal(copies)
	}
	before, err := os.Stat(copies[0])
	if err != nil || before.Mode().Perm() != 0o700 {
		t.Fatal(before, err)
	}
	run()
	if after, err := os.Stat(copies[0]); err != nil || !os.SameFile(before, after) {
		t.Error("a copy that was right was made again")
	}
	if err := os.WriteFile(copies[0], []byte("#!/bin/sh\necho changed\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run()
	if left, _ := filepath.Glob(copies[0] + ".*"); len(left) > 0 {
		t.Errorf("left beside the copy: %v", left)
	}
}

// An unreachable host is an error in ssh's own words, as is a host whose program ends.
func TestUnreached(t *testing.T) {
	shell(t, "echo 'ssh: no route\033[31m' >&2; exit 255")
	_, err := Start(context.Background(), "h", program(t, echo))
	var un *Unreached
	if !errors.As(err, &un) || err.Error() != "host h: ssh: no route?[31m" {
		t.Errorf("%v", err)
	}
	shell(t, "yes | head -c 1000000")
	if _, err := Start(context.Background(), "h", program(t, echo)); err == nil || !strings.Contains(err.Error(), "prints more than it should") {
		t.Errorf("%v", err)
	}
	shell(t, "echo For members only >&2")
	s, err := Start(context.Background(), "h", program(t, "#!/bin/sh\nexit 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Line(5); err == nil || err.Error() != "host h: the connection has ended" {
		t.Errorf("%v", err)
	}
	s.Close()
	shell(t, "")
	s, err = Start(context.Background(), "h", program(t, "#!/bin/sh\necho a very long line\necho the reason >&2\nexit 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Line(5); err == nil {
		t.Error("a line longer than its bound was taken")
	}
	if _, err := s.Line(5); err == nil || err.Error() != "host h: the reason" {
		t.Errorf("%v", err)
	}
}

func TestCheckHost(t *testing.T) {
	for _, name := range []string{"node1", "me@node1.site", "10.0.0.1", "fe80::1"} {
		if err := CheckHost(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-oProxyCommand=x", "a b", "a;b", "$(x)", "me@-x", "a/b", "a'b"} {
		if CheckHost(name) == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
