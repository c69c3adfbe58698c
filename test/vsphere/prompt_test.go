package vsphere

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// keyboard is the user's end of a real terminal, in which a program runs.
type keyboard struct {
	t    *testing.T
	cmd  *exec.Cmd
	f    *os.File
	tty  *os.File
	mu   sync.Mutex
	seen bytes.Buffer
	news chan struct{}
}

// inTerminal starts nearmetal in a terminal of its own.
func inTerminal(t *testing.T, args ...string) *keyboard {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	program, err := filepath.Abs("../../build/nearmetal")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	k := &keyboard{t: t, cmd: exec.CommandContext(ctx, program, args...), f: f, tty: tty, news: make(chan struct{}, 1)}
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = tty, tty, tty
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			if err != nil {
				return
			}
			k.mu.Lock()
			k.seen.Write(b[:n])
			k.mu.Unlock()
			select {
			case k.news <- struct{}{}:
			default:
			}
		}
	}()
	return k
}

func (k *keyboard) screen() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen.String()
}

// await waits until the screen has a text.
func (k *keyboard) await(text string) {
	k.t.Helper()
	limit := time.After(2 * time.Minute)
	for !strings.Contains(k.screen(), text) {
		select {
		case <-k.news:
		case <-limit:
			k.t.Fatalf("no %q on the screen:\n%s", text, k.screen())
		}
	}
}

// answer waits for the question, and types once the terminal shows no more what is typed.
func (k *keyboard) answer(text string) {
	k.t.Helper()
	k.await("password of " + vcsim.User + " at ")
	for limit := time.Now().Add(2 * time.Minute); k.echoes(); {
		if time.Now().After(limit) {
			k.t.Fatal("the terminal shows what is typed")
		}
		time.Sleep(time.Millisecond) // a terminal does not say when its settings change
	}
	if _, err := k.f.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

// echoes says whether the terminal shows what is typed.
func (k *keyboard) echoes() bool {
	s, err := unix.IoctlGetTermios(int(k.tty.Fd()), unix.TCGETS)
	if err != nil {
		k.t.Fatal(err)
	}
	return s.Lflag&unix.ECHO != 0
}

// end waits for the program's end, and returns its exit status; the terminal is as it was.
func (k *keyboard) end() int {
	k.t.Helper()
	k.cmd.Wait()
	if !k.echoes() {
		k.t.Error("the terminal was left without echo")
	}
	if strings.Contains(k.screen(), vcsim.Password) {
		k.t.Errorf("the password is on the screen:\n%s", k.screen())
	}
	return k.cmd.ProcessState.ExitCode()
}

// A password that is nowhere is asked for at the terminal, and not shown there. A wrong one is an error, none is one that says where it
// can be, and Ctrl-C leaves the terminal as it was.
func TestPrompt(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	t.Setenv("GOVC_PASSWORD", "")
	k := inTerminal(t, "topology", "--vsphere", s.Host)
	k.answer(vcsim.Password + "\n")
	if code := k.end(); code != 0 {
		t.Errorf("%d\n%s", code, k.screen())
	}
	k.await(s.Host)
	k = inTerminal(t, "topology", "--vsphere", s.Host)
	k.answer("another\n")
	if code := k.end(); code != 125 {
		t.Errorf("%d\n%s", code, k.screen())
	}
	k.await("user name or password of " + vcsim.User + " is wrong")
	k = inTerminal(t, "topology", "--vsphere", s.Host)
	k.answer("\n")
	if code := k.end(); code != 125 {
		t.Errorf("%d\n%s", code, k.screen())
	}
	k.await("no password for " + vcsim.User)
	k = inTerminal(t, "topology", "--vsphere", s.Host)
	k.answer("\x03")
	if code := k.end(); code != 130 {
		t.Errorf("Ctrl-C: %d\n%s", code, k.screen())
	}
	// Nobody is there to be asked.
	if _, errs, code := run(t, "", "topology", "--vsphere", s.Host); code != 125 || !strings.Contains(errs, "no password for") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d, %q", code, errs)
	}
}

// What was typed for up serves the cluster until its end: it is in no file, and on no command line.
func TestPromptUp(t *testing.T) {
	guests(t)
	before := inventory()
	t.Setenv("GOVC_PASSWORD", "")
	k := inTerminal(t, "up", "-f", fileOf(t, strings.Replace(lifeFile, "count: 2", "count: 1", 1)))
	k.answer(vcsim.Password + "\n")
	if code := k.end(); code != 0 {
		t.Fatalf("%d\n%s", code, k.screen())
	}
	filepath.WalkDir(os.Getenv("XDG_RUNTIME_DIR"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(vcsim.Password)) {
				t.Errorf("%s has the password", path)
			}
		}
		return nil
	})
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if text, err := os.ReadFile(f); err == nil && bytes.Contains(text, []byte(vcsim.Password)) {
			t.Errorf("%s: %q", f, text)
		}
	}
	ok(t, "", "exec", "life/vm0", "--", "true")
	ok(t, "", "down", "life") // the cluster's owner still has it
	if after := inventory(); len(after) != len(before) {
		t.Errorf("left: %v", after)
	}
}
