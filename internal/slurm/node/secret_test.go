package node

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const testSecret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// roleVar selects the role of this test's program: the wrapper of a task, or another process of the same user that
// searches for the secret.
const roleVar = "NEARMETAL_TEST_SECRET"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "wrapper":
		wrapper()
	case "spy":
		spy(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// wrapper reads the secret as nearmetal-task does, starts a program as it starts a supervisor, and waits.
func wrapper() {
	s, err := InheritedSecret()
	if err != nil || s != testSecret {
		fmt.Println("no secret:", err)
		os.Exit(1)
	}
	child := exec.Command("/bin/cat")
	in, _ := child.StdinPipe()
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(child.Process.Pid)
	io.Copy(io.Discard, os.Stdin) // until the test has searched
	in.Close()
	child.Wait()
	fmt.Println(len(s)) // keeps it in memory until here
	os.Exit(0)
}

// spy prints where it finds the secret in a process.
func spy(pid string) {
	dir := "/proc/" + pid
	look := func(name string, b []byte) {
		if bytes.Contains(b, []byte(testSecret)) || bytes.Contains(b, []byte("NEARMETAL_SLURM_SECRET")) {
			fmt.Println("found in", name)
		}
	}
	for _, name := range []string{"environ", "cmdline"} {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		look(name, b)
	}
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		target, _ := os.Readlink(dir + "/fd/" + fd.Name())
		if f, err := os.OpenFile(dir+"/fd/"+fd.Name(), os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			b := make([]byte, 4096)
			n, _ := syscall.Read(int(f.Fd()), b)
			look("fd "+fd.Name()+" "+target, b[:max(n, 0)])
			f.Close()
		}
	}
	maps, _ := os.ReadFile(dir + "/maps")
	mem, err := os.Open(dir + "/mem")
	if err == nil {
		for _, line := range strings.Split(string(maps), "\n") {
			var from, to int64
			if n, _ := fmt.Sscanf(line, "%x-%x rw", &from, &to); n == 2 && to-from < 256<<20 {
				b := make([]byte, to-from)
				n, _ := mem.ReadAt(b, from)
				look("memory", b[:max(n, 0)])
			}
		}
	}
	os.Exit(0)
}

// Checks that a process of the same user finds the secret neither in the wrapper nor in its child: in no environment,
// argument, open file or memory.
func TestSecretIsHidden(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A copy that the user may read and execute: a process is readable in /proc only if its program is.
	dir, err := os.MkdirTemp("", "nearmetal-secret")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, testSecret)
	w.Close()
	cmd := exec.Command(program)
	cmd.Env = []string{roleVar + "=wrapper", VarSecretFD + "=3"}
	cmd.ExtraFiles, cmd.SysProcAttr, cmd.Stderr = []*os.File{r}, user, os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal("the wrapper has no secret: ", err)
	}
	for _, pid := range []int{cmd.Process.Pid, child} {
		s := exec.Command(program, fmt.Sprint(pid))
		s.Env, s.SysProcAttr = []string{roleVar + "=spy"}, user
		found, err := s.CombinedOutput()
		if err != nil || len(found) > 0 {
			t.Errorf("process %d: %s %v", pid, found, err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestBadSecrets(t *testing.T) {
	pipe := func(text string) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
		w.Close()
		return r
	}
	for _, text := range []string{"", testSecret[1:], testSecret + "0"} {
		if s, err := ReadSecret(pipe(text)); err == nil {
			t.Errorf("%q is taken of %q", s, text)
		}
	}
	for _, fd := range []string{"", "x", "-1", "0", "1", "99999"} {
		t.Setenv(VarSecretFD, fd)
		if _, err := InheritedSecret(); err == nil {
			t.Errorf("descriptor %q is taken", fd)
		}
	}
	os.Unsetenv(VarSecretFD)
	if s, err := InheritedSecret(); s != "" || err != nil {
		t.Errorf("without one: %q, %v", s, err)
	}
}
