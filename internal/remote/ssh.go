package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/linejson"
	"nearmetal/internal/text"
)

// hostName matches the names that may be passed to ssh, which contain no option and no shell syntax. A name may be an
// alias of the user's ssh configuration, and may be preceded by a user.
var hostName = lazyregexp.New(`^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}$`)

// CheckHost returns an error if a host's name must not be passed to ssh.
func CheckHost(name string) error {
	if !hostName().MatchString(name) {
		return fmt.Errorf("%.80q is not a host's name: write HOST or USER@HOST, as for ssh", name)
	}
	return nil
}

// Bounds.
const (
	connectBound = 15              // seconds, for ssh to reach a host
	aliveEvery   = 5               // seconds between ssh's keepalive messages to the host
	aliveMost    = 4               // unanswered keepalive messages after which the host is considered lost
	saidMost     = 4096            // bytes that are kept of ssh's standard error
	closeBound   = 5 * time.Second // for ssh to end once its input has ended
	goneBound    = 2 * time.Second // for ssh to print why its output has ended
)

// options are the options of every ssh. The user's own configuration provides the rest: names, keys, jumps, a shared
// connection (ControlPath). A connection made by nearmetal is not shared, because it ends with the cluster.
var options = []string{
	"-T", "-x", "-a",
	"-o", "BatchMode=yes", "-o", "LogLevel=INFO", "-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes",
	"-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none", "-o", "StdinNull=no", "-o", "ForkAfterAuthentication=no",
	"-o", fmt.Sprintf("ConnectTimeout=%d", connectBound),
	"-o", fmt.Sprintf("ServerAliveInterval=%d", aliveEvery), "-o", fmt.Sprintf("ServerAliveCountMax=%d", aliveMost),
}

// Session is a program that runs on another host. Reads are from its standard output, writes are to its standard input.
// When the input ends, by Close or with this process, the program is expected to end.
type Session struct {
	Host string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said *tail
	done chan struct{} // closed when ssh has ended
	once sync.Once
}

// Start runs the program of files on a host with the arguments args, which are plain words. It returns when the program
// has been started there. The error is one line with ssh's own words.
func Start(ctx context.Context, host string, files *Files, args ...string) (*Session, error) {
	return StartAs(ctx, Login{}, host, files, args...)
}

// Login is how ssh logs in if the user's own configuration does not define it. Zero fields are left to that
// configuration.
type Login struct {
	Key   string // file of the private key, the only one that is offered
	Known string // file of the trusted host keys, the only one
	Alias string // name under which the host's key is known
}

// options returns ssh's options for the login. They override the user's configuration.
func (l Login) options() []string {
	var list []string
	if l.Key != "" {
		list = append(list, "-o", "IdentityFile="+l.Key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none")
	}
	if l.Known != "" {
		list = append(list, "-o", "UserKnownHostsFile="+l.Known, "-o", "GlobalKnownHostsFile=/dev/null", "-o", "UpdateHostKeys=no")
	}
	if l.Alias != "" {
		list = append(list, "-o", "HostKeyAlias="+l.Alias)
	}
	if len(list) > 0 {
		list = append(list, "-o", "StrictHostKeyChecking=yes", "-o", "CheckHostIP=no", "-o", "ControlPath=none")
	}
	return list
}

// StartAs is Start with a given login.
func StartAs(ctx context.Context, l Login, host string, files *Files, args ...string) (*Session, error) {
	if err := CheckHost(host); err != nil {
		return nil, err
	}
	script := files.script(args)
	s := &Session{Host: host, said: &tail{}, done: make(chan struct{})}
	s.cmd = exec.Command("ssh", append(append(append([]string{}, options...), l.options()...), "--", host, script)...)
	s.cmd.Stderr = s.said
	// A new session, because Ctrl-C at the terminal is meant for nearmetal, and ssh must not prompt on a terminal.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	s.cmd.WaitDelay = time.Second
	// StdoutPipe and StdinPipe are not used, because Wait closes those before all is read.
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		outR.Close()
		outW.Close()
		return nil, err
	}
	s.cmd.Stdin, s.cmd.Stdout = inR, outW
	s.in, s.out = inW, bufio.NewReaderSize(outR, 64<<10)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // PDEATHSIG is about this thread
		err := s.cmd.Start()
		inR.Close()
		outW.Close()
		started <- err
		if err == nil {
			s.cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		outR.Close()
		inW.Close()
		return nil, fmt.Errorf("cannot start ssh: %w", err)
	}
	go func() { // a program started by the host may keep the pipe's other end open only while ssh lives
		<-s.done
		time.Sleep(time.Second)
		outR.SetReadDeadline(time.Now().Add(time.Second))
	}()
	stop := context.AfterFunc(ctx, func() { s.Kill() })
	defer stop()
	if err := s.install(files); err != nil {
		s.Kill()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return s, nil
}

// Read reads from the program's standard output. At its end the error contains ssh's own message.
func (s *Session) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if err != nil {
		err = s.why(err)
	}
	return n, err
}

// Line reads a line of the program's standard output, and returns it without its end. It fails if the line with its end
// is longer than most bytes.
func (s *Session) Line(most int) (string, error) {
	b, err := linejson.Line(s.out, most)
	var long linejson.TooLongError
	switch {
	case errors.As(err, &long):
		return "", fmt.Errorf("host %s: %w", s.Host, err)
	case err != nil:
		return "", s.why(err)
	}
	return string(b), nil
}

// Write writes to the program's standard input.
func (s *Session) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close ends the program's standard input, and waits for up to closeBound until ssh has ended; then it kills ssh.
func (s *Session) Close() error {
	s.once.Do(func() { s.in.Close() })
	t := time.AfterFunc(closeBound, func() { s.Kill() })
	defer t.Stop()
	<-s.done
	return nil
}

// Done returns a channel that is closed when ssh has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Kill ends ssh at once. The program on the host then sees the end of its input.
func (s *Session) Kill() {
	s.once.Do(func() { s.in.Close() })
	if s.cmd.Process != nil {
		s.cmd.Process.Kill()
	}
}

// Unreached is the error of a session whose host could not be reached, or no longer can. Why has ssh's own words, if
// ssh printed any.
type Unreached struct{ Host, Why string }

func (u *Unreached) Error() string { return fmt.Sprintf("host %s: %s", u.Host, u.Why) }

// why returns an error with the reason why the output has ended.
func (s *Session) why(err error) error {
	select {
	case <-s.done:
	case <-time.After(goneBound):
	}
	words := s.said.last()
	switch {
	case words != "":
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded):
		words = "the connection has ended"
	default:
		words = err.Error()
	}
	return &Unreached{s.Host, words}
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - saidMost; n > 0 {
		t.b = append([]byte(nil), t.b[n:]...)
	}
	return len(p), nil
}

// last returns the last non-empty line, sanitized. Earlier lines, such as a banner, do not explain why the program
// ended.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := string(t.b)
	if i := strings.LastIndex(said, mark+"start\n"); i >= 0 {
		said = said[i+len(mark+"start\n"):]
	}
	return text.LastLine(said)
}
