package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest/channel"
)

// agentPath is the agent built for the tests, with sanitizers. The variable NEARMETAL_TEST_AGENT names another one.
var agentPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if agentPath = os.Getenv("NEARMETAL_TEST_AGENT"); agentPath != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "nearmetal-agent-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		agentPath = filepath.Join(dir, "nearmetal-agent")
		src, _ := filepath.Glob("../../guest/*.c")
		args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
			"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", agentPath}, src...)
		cc := os.Getenv("CC")
		if cc == "" {
			cc = "gcc"
		}
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "the agent cannot be compiled: %v\n%s", err, out)
			return 1
		}
		os.Setenv("NEARMETAL_TEST_AGENT", agentPath) // for the workers of a fuzz target
		return m.Run()
	}())
}

// testAgent is a real agent at the other end of a socket pair.
type testAgent struct {
	*Agent
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	socket string
}

// startAgent starts an agent; more are additional arguments of its program.
func startAgent(t *testing.T, name string, o AgentOptions, more ...string) *testAgent {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(fds[1]), "far")
	near := os.NewFile(uintptr(fds[0]), "near")
	a := &testAgent{stderr: &bytes.Buffer{}, socket: filepath.Join(t.TempDir(), "agent.sock")}
	a.cmd = exec.Command(agentPath, append([]string{"--serve", "3", "--no-init", "--name", name, "--socket", a.socket}, more...)...)
	a.cmd.ExtraFiles = []*os.File{far}
	a.cmd.Stderr = a.stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		t.Fatal(err)
	}
	o.Name = name
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if a.Agent, err = NewAgent(ctx, conn, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		a.cmd.Wait()
		if s := a.stderr.String(); strings.Contains(s, "Sanitizer") || strings.Contains(s, "runtime error") {
			t.Errorf("the agent's sanitizer:\n%s", s)
		}
	})
	return a
}

func me(args ...string) Exec {
	return Exec{Args: args, Env: []string{"PATH=" + os.Getenv("PATH"), "A=one", "TERM=xterm-256color"},
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}

// run runs e to its end with stdin, and returns its output and status.
func run(t *testing.T, c *Client, e Exec, stdin string) (stdout, stderr string, st Status) {
	t.Helper()
	p, err := c.Start(e)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go func() {
		io.WriteString(p.Stdin, stdin)
		p.Stdin.Close()
	}()
	errText := make(chan string)
	go func() {
		b, _ := io.ReadAll(p.Stderr)
		errText <- string(b)
	}()
	b, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatalf("stdout: %v", err)
	}
	stderr = <-errText
	if st, err = p.Wait(); err != nil {
		t.Fatal(err)
	}
	return string(b), stderr, st
}

func TestExec(t *testing.T) {
	a := startAgent(t, "vm7", AgentOptions{})
	if a.Info.Agent == "" || a.Info.Kernel == "" || len(a.Info.Phases) == 0 {
		t.Errorf("HELLO says %+v", a.Info)
	}
	if _, err := a.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	mask := uint32(0o27)
	sh := func(script string, f func(*Exec)) Exec {
		e := me("/bin/sh", "-c", script)
		if f != nil {
			f(&e)
		}
		return e
	}
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, []byte("echo plain $1\n"), 0o755)
	for _, c := range []struct {
		name        string
		e           Exec
		in, out, er string
		st          Status
	}{
		{name: "streams apart", e: sh("cat; echo e >&2; exit 3", nil), in: "hello\n", out: "hello\n", er: "e\n", st: Status{Code: 3}},
		{name: "environment", e: sh("echo $A", nil), out: "one\n"},
		{name: "no environment but ours", e: sh("env | grep -c ^NEARMETAL", nil), out: "0\n", st: Status{Code: 1}},
		{name: "directory", e: sh("pwd", func(e *Exec) { e.Dir = dir }), out: dir + "\n"},
		{name: "optional directory", e: sh("pwd", func(e *Exec) { e.Dir = "/no/such"; e.DirOptional = true }), out: "/\n"},
		{name: "missing directory", e: sh("pwd", func(e *Exec) { e.Dir = "/no/such" }),
			st: Status{Code: 126, Message: "vm7: cannot enter the working directory: No such file or directory"}},
		{name: "signal", e: sh("kill -9 $$", nil), st: Status{Signal: syscall.SIGKILL}},
		{name: "not found", e: me("no-such-program"), st: Status{Code: 127, Message: "vm7: no-such-program: no such program in PATH"}},
		{name: "path not found", e: me("/no/such"), st: Status{Code: 127, Message: "vm7: /no/such: no such program, or its interpreter is missing"}},
		{name: "not executable", e: me("/etc/passwd"), st: Status{Code: 126, Message: "vm7: /etc/passwd: may not be executed"}},
		{name: "script without #!", e: me("plain", "x"), out: "plain x\n"},
		{name: "no stdin", e: sh("readlink /proc/self/fd/0", func(e *Exec) { e.NoStdin = true }), out: "/dev/null\n"},
		{name: "umask", e: sh("umask", func(e *Exec) { e.Umask = &mask }), out: "0027\n"},
		{name: "limits", e: sh("ulimit -n; ulimit -Hc", func(e *Exec) {
			e.Rlimits = []Rlimit{{"nofile", 77, 88}, {"core", 0, 0}}
		}), out: "77\n0\n"},
		{name: "no descriptors left over", e: sh("ls /proc/self/fd | wc -l", nil), out: "4\n"},
		{name: "default signals", e: sh("trap - PIPE; grep -E 'Sig(Blk|Ign)' /proc/self/status", nil),
			out: "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"},
		{name: "stdin that nobody reads", e: me("true"), in: strings.Repeat("x", 1<<20)},
		{name: "orphan holds stdout", e: sh("(sleep 0.1; echo late) & exit 4", nil), out: "late\n", st: Status{Code: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "script without #!" {
				c.e.Env = []string{"PATH=" + dir + ":/bin"}
			}
			out, er, st := run(t, a.Client, c.e, c.in)
			if out != c.out || er != c.er || st != c.st {
				t.Errorf("got %q, %q, %+v; want %q, %q, %+v", out, er, st, c.out, c.er, c.st)
			}
		})
	}
}

func TestExecAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("must run as root in CI: it changes the user")
		}
		t.Skip("not root: cannot change the user")
	}
	a := startAgent(t, "vm0", AgentOptions{})
	e := me("sh", "-c", "id -u; id -g; id -G; cat /etc/shadow")
	e.UID, e.GID, e.Groups = 4242, 4343, []uint32{7, 8}
	out, _, st := run(t, a.Client, e, "")
	if out != "4242\n4343\n4343 7 8\n" || st.Code == 0 {
		t.Errorf("%q, %v", out, st)
	}
}

func TestRefusals(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	ids := channel.Fields{{Key: "uid", Value: "0"}, {Key: "gid", Value: "0"}}
	for want, c := range map[string]struct {
		kind string
		h    channel.Fields
	}{
		"exec: uid is missing or is not a number":    {"exec", channel.Fields{{Key: "arg", Value: "true"}}},
		"exec: no program is named":                  {"exec", ids},
		"exec: a group is not a number":              {"exec", append(ids, channel.Field{Key: "group", Value: "x"})},
		"exec: a resource limit that cannot be":      {"exec", append(ids, channel.Field{Key: "rlimit", Value: "nofile 8 7"})},
		"exec: an umask that cannot be":              {"exec", append(ids, channel.Field{Key: "umask", Value: "99"})},
		"copy: the path is not absolute":             {"push", append(ids, channel.Field{Key: "path", Value: "x"})},
		"this agent knows no streams of kind dance":  {"dance", nil},
		"no such listener":                           {"accept", channel.Fields{{Key: "listener", Value: "9"}}},
		"nonsense: not an address and a port":        {"tcp", channel.Fields{{Key: "addr", Value: "nonsense"}}},
		"127.0.0.1:99999: not an address and a port": {"listen", channel.Fields{{Key: "addr", Value: "127.0.0.1:99999"}}},
	} {
		s, err := a.Mux().Open(c.kind, c.h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(context.Background()); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", c.kind, err, want)
		}
	}
	out, _, _ := run(t, a.Client, me("echo", "alive"), "")
	if out != "alive\n" {
		t.Errorf("afterwards: %q", out)
	}
}

func TestManyAtOnce(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	done := make(chan string)
	for i := range 32 {
		go func() {
			p, err := a.Start(me("sh", "-c", fmt.Sprintf("head -c 300000 /dev/zero; exit %d", i)))
			if err != nil {
				done <- err.Error()
				return
			}
			defer p.Close()
			n, err := io.Copy(io.Discard, p.Stdout)
			st, werr := p.Wait()
			if n != 300000 || err != nil || werr != nil || st.Code != i {
				done <- fmt.Sprint(i, n, err, werr, st)
				return
			}
			done <- ""
		}()
	}
	for range 32 {
		if s := <-done; s != "" {
			t.Error(s)
		}
	}
}

func TestSignalsGoToTheGroup(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	// The shell's child prints ready: a signal sent before the child was started would only be handled after its end.
	p, err := a.Start(me("sh", "-c", `trap 'echo caught; exit 9' USR1; sh -c 'echo ready; exec sleep 1000'; exit 1`))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b := make([]byte, 6)
	io.ReadFull(p.Stdout, b)
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	// The shell waits for sleep, which dies of the signal only because the signal is sent to the group.
	out, _ := io.ReadAll(p.Stdout)
	st, err := p.Wait()
	if string(out) != "caught\n" || st.Code != 9 || err != nil {
		t.Errorf("%q %v %v", out, st, err)
	}
	if p.PID() == 0 {
		t.Error("no PID")
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// awaitGone waits until a process has ended, by its pidfd.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 60 {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n == 1 || err != nil && err != unix.EINTR {
			return
		}
	}
	t.Errorf("process %d lives on", pid)
}

// TestNothingSurvivesItsClient starts a program with a child that ignores SIGHUP and SIGTERM, and closes the client.
func TestNothingSurvivesItsClient(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	for _, how := range []string{"close", "carrier"} {
		t.Run(how, func(t *testing.T) {
			a := startAgent(t, "vm0", AgentOptions{})
			p, err := a.Start(me("sh", "-c", `trap '' HUP TERM; setsid sleep 1000 & sleep 1000 & echo $$ $!; wait; sleep 1000`))
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64)
			n, err := p.Stdout.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			var shell, sleep int
			if _, err := fmt.Sscan(string(b[:n]), &shell, &sleep); err != nil {
				t.Fatalf("%q: %v", b[:n], err)
			}
			if !alive(shell) || !alive(sleep) {
				t.Fatal("not even started")
			}
			if how == "close" {
				p.Close()
			} else {
				a.Close()
			}
			awaitGone(t, shell)
			awaitGone(t, sleep)
		})
	}
}

func TestTerminal(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	e := me("sh", "-c", `tty; stty size; echo $TERM; trap 'stty size' WINCH; while read x; do echo "got $x"; done; echo end`)
	e.TTY, e.Rows, e.Cols = true, 31, 97
	p, err := a.Start(e)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if b, err := io.ReadAll(p.Stderr); err != nil || len(b) != 0 {
		t.Errorf("stderr: %q, %v", b, err)
	}
	text := ""
	await := func(want string) {
		t.Helper()
		b := make([]byte, 1024)
		for !strings.Contains(text, want) {
			n, err := p.Stdout.Read(b)
			if err != nil {
				t.Fatalf("waiting for %q after %q: %v", want, text, err)
			}
			text += string(b[:n])
		}
		text = text[strings.Index(text, want)+len(want):]
	}
	await("/dev/pts/")
	await("31 97\r\n")
	await("xterm-256color\r\n")
	io.WriteString(p.Stdin, "one\n")
	await("got one\r\n")
	if err := p.Resize(40, 120); err != nil {
		t.Fatal(err)
	}
	// The shell runs its trap once read returns.
	io.WriteString(p.Stdin, "two\n")
	await("40 120\r\n")
	p.Stdin.Close()
	await("end\r\n")
	st, err := p.Wait()
	if st != (Status{}) || err != nil {
		t.Error(st, err)
	}
}

func TestTerminalInterrupt(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	e := me("sh", "-c", "echo ready; exec sleep 1000")
	e.TTY = true
	p, err := a.Start(e)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b := make([]byte, 7)
	io.ReadFull(p.Stdout, b)
	io.WriteString(p.Stdin, "\x03")
	if st, err := p.Wait(); st.Signal != syscall.SIGINT || err != nil {
		t.Error(st, err)
	}
}

// TestThroughput sends more data than any buffer holds through cat and back, and compares checksums.
func TestThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	const size = 256 << 20
	a := startAgent(t, "vm0", AgentOptions{})
	p, err := a.Start(me("cat"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7 >> 3)
	}
	want, got := sha256.New(), sha256.New()
	sent := make(chan error, 1)
	go func() {
		for n := 0; n < size; n += len(block) {
			block[n>>20&0xfffff]++
			want.Write(block)
			if _, err := p.Stdin.Write(block); err != nil {
				sent <- err
				return
			}
		}
		sent <- p.Stdin.Close()
	}()
	n, err := io.Copy(got, p.Stdout)
	if err != nil || n != size {
		t.Fatalf("%d bytes came back: %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Error("other bytes came back")
	}
	if st, err := p.Wait(); st != (Status{}) || err != nil {
		t.Error(st, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the agent's pages: %s", status)
}

// TestSlowReader leaves the output of one program unread while another continues.
func TestSlowReader(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	slow, err := a.Start(me("head", "-c", "20000000", "/dev/zero"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	for range 3 {
		if out, _, _ := run(t, a.Client, me("echo", "hi"), ""); out != "hi\n" {
			t.Fatal(out)
		}
	}
	if n, err := io.Copy(io.Discard, slow.Stdout); n != 20000000 || err != nil {
		t.Error(n, err)
	}
}

func TestLostVM(t *testing.T) {
	a := startAgent(t, "vm3", AgentOptions{Explain: func() string { return "the last line of the console" }})
	p, err := a.Start(me("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	for p.PID() == 0 {
		if _, err := a.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	defer syscall.Kill(-p.PID(), syscall.SIGKILL) // its agent cannot kill it
	a.cmd.Process.Kill()
	_, err = p.Wait()
	var lost *channel.CarrierError
	if !errors.As(err, &lost) || err.Error() != "vm3: has ended\nthe last line of the console" {
		t.Errorf("Wait: %v", err)
	}
	if _, err := io.ReadAll(p.Stdout); !errors.As(err, &lost) {
		t.Errorf("Stdout: %v", err)
	}
	if _, err := a.Start(me("true")); !errors.As(err, &lost) {
		t.Errorf("Start: %v", err)
	}
}

func TestPoweroff(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	if err := a.Poweroff(context.Background()); err != nil {
		t.Error(err)
	}
	<-a.Mux().Done()
}

func TestTCP(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	ctx := context.Background()
	l, err := a.ListenTCP(ctx, "", "127.0.0.1:0", func(c net.Conn) {
		io.Copy(c, c) // an echo
	})
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("to and fro "), 200000)
	for i := range 3 {
		c, err := a.DialTCP(ctx, "", l.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().String() != l.Addr {
			t.Errorf("connected to %v", c.RemoteAddr())
		}
		go func() {
			c.Write(text)
			c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		back, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(back, text) {
			t.Errorf("connection %d: %d bytes, %v", i, len(back), err)
		}
		c.Close()
	}
	l.Close()
	if _, err := a.DialTCP(ctx, "", l.Addr); err == nil || !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "Connection refused") {
		t.Errorf("after Close: %v", err)
	}
}

func TestRsh(t *testing.T) {
	// A program in vm0 runs one in vm1 by the switchboard.
	sb := channel.NewSwitchboard()
	sb.Policy = func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
		if from == "vm0" && h.Get("uid") != fmt.Sprint(os.Getuid()) {
			return nil, errors.New("the agent did not say who asks")
		}
		return h, nil
	}
	vm0 := startAgent(t, "vm0", AgentOptions{Accept: sb.FromVM("vm0")})
	vm1 := startAgent(t, "vm1", AgentOptions{Accept: sb.FromVM("vm1")})
	sb.AddVM("vm0", vm0.Mux())
	sb.AddVM("vm1", vm1.Mux())
	rsh := func(args ...string) Exec {
		e := me(append([]string{agentPath, "rsh"}, args...)...)
		e.Env = append(e.Env, "NEARMETAL_AGENT_SOCKET="+vm0.socket, "B=two words")
		e.Dir = "/tmp"
		return e
	}
	for _, c := range []struct {
		name string
		e    Exec
		in   string
		out  string
		er   string
		st   Status
	}{
		{"command", rsh("-x", "-o", "Batch=yes", "-luser", "vm1", "echo", "$B;", "pwd"), "", "two words\n/tmp\n", "", Status{}},
		{"streams", rsh("me@vm1", "cat; echo e >&2; exit 5"), "in\n", "in\n", "e\n", Status{Code: 5}},
		{"volume", rsh("vm1", "cat | wc -c"), strings.Repeat("0123456789", 300000), "3000000\n", "", Status{}},
		{"no stdin", rsh("-n", "vm1", "cat"), "unread", "", "", Status{}},
		{"signal", rsh("vm1", "kill -TERM $$"), "", "", "", Status{Signal: syscall.SIGTERM}},
		{"other VM", rsh("vm9", "true"), "", "", "nearmetal-rsh: no VM \"vm9\" in this cluster\n", Status{Code: 255}},
		{"no command", rsh("vm1"), "", "", "nearmetal-rsh: usage: nearmetal-rsh [options of ssh, ignored] VM COMMAND...\n", Status{Code: 255}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, er, st := run(t, vm0.Client, c.e, c.in)
			if out != c.out || er != c.er || st != c.st {
				t.Errorf("got %q, %q, %+v", out, er, st)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		p, err := vm0.Start(rsh("vm1", "echo $$; exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, err := p.Stdout.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		fmt.Sscan(string(b[:n]), &pid)
		p.Signal(syscall.SIGKILL) // the rsh itself: its carrier ends
		p.Close()
		awaitGone(t, pid)
	})
	t.Run("hostile client", func(t *testing.T) {
		c, err := net.Dial("unix", vm0.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write(bytes.Repeat([]byte("garbage"), 10000))
		io.ReadAll(c) // the connection is closed
		if out, _, _ := run(t, vm0.Client, me("echo", "alive"), ""); out != "alive\n" {
			t.Error(out)
		}
	})
}
