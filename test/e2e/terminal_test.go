package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// session is a nearmetal command in a terminal of its own, with a person at the keyboard.
type session struct {
	t        *testing.T
	cmd      *exec.Cmd
	keyboard *os.File
	tty      *os.File
	screen   *reader
	marks    int
}

func inTerminal(t *testing.T, rows, cols uint16, env []string, args ...string) *session {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	s := &session{t: t, cmd: command(t, args...), keyboard: keyboard, tty: tty, screen: newReader()}
	s.resize(rows, cols)
	s.cmd.Env = append(s.cmd.Environ(), env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keyboard.Read(b)
			if err != nil {
				return
			}
			s.screen.Write(b[:n])
		}
	}()
	return s
}

func (s *session) resize(rows, cols uint16) {
	if err := unix.IoctlSetWinsize(int(s.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) keys(k string) {
	if _, err := s.keyboard.WriteString(k); err != nil {
		s.t.Fatal(err)
	}
}

// do types a command and returns what the screen shows of it. The mark at its end is
// computed, so that the echo of what is typed is not taken for it.
func (s *session) do(line string) string {
	s.t.Helper()
	from := len(s.screen.String())
	s.marks++
	s.keys(fmt.Sprintf("%s; echo mark-$((%d+1000))\r", line, s.marks))
	mark := fmt.Sprintf("mark-%d\r\n", s.marks+1000)
	s.screen.await(s.t, mark)
	return s.screen.String()[from:]
}

// end waits for the command's end and returns its status.
func (s *session) end() int {
	s.t.Helper()
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func (s *session) settings() unix.Termios {
	s.t.Helper()
	v, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *v
}

func TestShell(t *testing.T) {
	needs(t, "bash")
	c := shared(t)
	s := inTerminal(t, 33, 101, []string{"SHELL=/bin/bash", "HOME=" + t.TempDir(), "TERM=xterm-256color"}, "shell", c, "--vm", "vm1")
	contains := func(got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q is missing in %q", w, got)
			}
		}
	}
	contains(s.do("hostname; tty; stty size; echo $TERM; id -u; pwd"),
		"vm1\r\n", "/dev/pts/0\r\n", "33 101\r\n", "xterm-256color\r\n", fmt.Sprintf("\r\n%d\r\n", os.Getuid()), s.cmd.Dir+"\r\n")
	raw := s.settings()
	if raw.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Error("the local terminal is not raw")
	}
	s.resize(50, 140)
	until(t, "the new size in the VM", func() bool { return strings.Contains(s.do("stty size"), "50 140\r\n") })

	// Job control: Ctrl-Z, bg, fg, Ctrl-C; none of them reaches nearmetal itself.
	s.keys("sh -c 'echo star''ted; exec sleep 1000'\r")
	s.screen.await(t, "started\r\n")
	s.keys("\x1a")
	s.screen.await(t, "Stopped")
	contains(s.do("jobs; bg"), "Stopped")
	contains(s.do("jobs"), "Running")
	s.keys("fg\r")
	until(t, "the job in the foreground", func() bool {
		return nm(t, "exec", "-c", c, "--vm", "vm1", "--", "sh", "-c", `ps -C sleep -o stat= -o args= | grep '1000$' | grep -q '+'`).code == 0
	})
	s.keys("\x03")
	contains(s.do("echo status-$?"), "status-130")

	// Every byte goes through as it is, colours and control characters too.
	contains(s.do(`printf '\033[31mred\033[0m\007'`), "\x1b[31mred\x1b[0m\x07")
	s.keys("exit 3\r")
	if code := s.end(); code != 3 {
		t.Errorf("exit status %d", code)
	}
	if after := s.settings(); after.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 {
		t.Error("the local terminal was left raw")
	}
}

// The shell on the host has the terminal to itself, and nearmetal waits for it.
func TestHostShellTerminal(t *testing.T) {
	needs(t, "bash")
	c := shared(t)
	s := inTerminal(t, 24, 80, []string{"SHELL=/bin/bash", "HOME=" + t.TempDir(), "TERM=xterm"}, "shell", c, "--host")
	if got := s.do("echo in-$NEARMETAL_CLUSTER; tty"); !strings.Contains(got, "in-shared\r\n") || !strings.Contains(got, s.tty.Name()+"\r\n") {
		t.Errorf("%q", got)
	}
	for _, want := range []string{"mpirun and its like in this shell put their ranks into the VMs of shared; exit leaves it\r\n", "(nearmetal shared) "} {
		if !strings.Contains(s.screen.String(), want) {
			t.Errorf("%q is missing in %q", want, s.screen.String())
		}
	}
	s.keys("sh -c 'echo star''ted; exec sleep 1000'\r")
	s.screen.await(t, "started\r\n")
	s.keys("\x1a")
	s.screen.await(t, "Stopped")
	s.do("kill -KILL %1; wait -f %1 2>/dev/null")
	if got := s.do("jobs"); strings.Contains(got, "Stopped") {
		t.Errorf("%q", got)
	}
	s.keys("exit 5\r")
	if code := s.end(); code != 5 {
		t.Errorf("exit status %d", code)
	}
}

// A shell whose input is not a terminal runs what it reads.
func TestShellScript(t *testing.T) {
	c := shared(t)
	cmd := command(t, "shell", c)
	cmd.Env = append(cmd.Environ(), "SHELL=/bin/sh", "HOME="+cmd.Dir)
	r := finish(t, cmd, "hostname\ntty\nexit 6\n").want(t, 6)
	if !strings.Contains(r.out, "vm0\n") || !strings.Contains(r.out, "not a tty\n") {
		t.Errorf("%q, %q", r.out, r.err)
	}
}

func TestExecTerminal(t *testing.T) {
	c := shared(t)
	s := inTerminal(t, 24, 80, []string{"TERM=vt100"}, "exec", "-c", c, "-t", "--", "sh", "-c", "tty; stty size; echo $TERM; read x; echo got-$x; exit 9")
	s.screen.await(t, "vt100\r\n")
	s.keys("word\r")
	s.screen.await(t, "got-word\r\n")
	if code := s.end(); code != 9 {
		t.Errorf("exit status %d", code)
	}
	if got := s.screen.String(); !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "24 80\r\n") {
		t.Errorf("%q", got)
	}

	// Without -t there is none, though there is one here.
	s = inTerminal(t, 24, 80, nil, "exec", "-c", c, "--", "sh", "-c", "tty; exit 8")
	if code := s.end(); code != 8 {
		t.Errorf("exit status %d", code)
	}
	s.screen.await(t, "not a tty")
}

// Ctrl-C in a terminal interrupts the command in the VM, not nearmetal.
func TestInterruptFromKeyboard(t *testing.T) {
	c := shared(t)
	for _, flags := range [][]string{{}, {"-t"}} {
		args := append([]string{"exec", "-c", c}, flags...)
		s := inTerminal(t, 24, 80, []string{"TERM=xterm"}, append(args, "--", "sh", "-c", `trap 'echo caught; exit 11' INT; echo re""ady; while :; do sleep 0.1; done`)...)
		s.screen.await(t, "ready")
		s.keys("\x03")
		if code := s.end(); code != 11 {
			t.Errorf("%q: exit status %d", flags, code)
		}
		s.screen.await(t, "caught")
	}
}

// The VMs' names have colours on a terminal, unless the user refuses them.
func TestPrefixColours(t *testing.T) {
	c := shared(t)
	for _, e := range []struct {
		env, want string
	}{
		{"NO_COLOR=", "m" + "vm1"},
		{"NO_COLOR=1", "vm1: vm1\r\n"},
	} {
		s := inTerminal(t, 24, 80, []string{"TERM=xterm", e.env}, "exec", "-c", c, "-n", "--all", "hostname")
		if code := s.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		s.screen.await(t, e.want)
		if e.env == "NO_COLOR=1" && strings.Contains(s.screen.String(), "\x1b[") {
			t.Errorf("colours: %q", s.screen.String())
		}
	}
}
