package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestExec(t *testing.T) {
	c := shared(t)
	t.Run("streams are kept apart", func(t *testing.T) {
		r := nm(t, "exec", "-c", c, "--", "sh", "-c", "echo out; echo err >&2").want(t, 0)
		if r.out != "out\n" || r.err != "err\n" {
			t.Errorf("out %q, err %q", r.out, r.err)
		}
	})
	t.Run("exit codes", func(t *testing.T) {
		nm(t, "exec", "-c", c, "true").want(t, 0)
		nm(t, "exec", "-c", c, "sh", "-c", "exit 7").want(t, 7)
		nm(t, "exec", "-c", c, "sh", "-c", "kill -TERM $$").want(t, 128+15)
	})
	t.Run("a command that is not in the VM", func(t *testing.T) {
		nm(t, "exec", "-c", c, "no-such-command").want(t, 127, "no-such-command")
		nm(t, "exec", "-c", c, "/etc/passwd").want(t, 126)
	})
	t.Run("in every VM", func(t *testing.T) {
		r := nm(t, "exec", "-c", c, "--all", "hostname").want(t, 0)
		if !strings.Contains(r.out, "vm0: vm0\n") || !strings.Contains(r.out, "vm1: vm1\n") {
			t.Errorf("out: %q", r.out)
		}
		nm(t, "exec", "-c", c, "--all", "sh", "-c", "test $(hostname) = vm0").want(t, 1, "vm1: exit status 1")
	})
	t.Run("environment", func(t *testing.T) {
		cmd := command(t, "exec", "-c", c, "--env", "B=given", "--env", "A", "sh", "-c", "echo $A-$B")
		cmd.Env = append(cmd.Environ(), "A=mine", "B=other")
		if r := finish(t, cmd, ""); r.out != "mine-given\n" {
			t.Errorf("out: %q", r.out)
		}
	})
	t.Run("input", func(t *testing.T) {
		r := finish(t, command(t, "exec", "-c", c, "wc", "-c"), strings.Repeat("x", 100_000))
		if strings.TrimSpace(r.out) != "100000" {
			t.Errorf("out: %q", r.out)
		}
	})
	t.Run("signals", func(t *testing.T) {
		cmd := command(t, "exec", "-c", c, "sh", "-c", `trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.1; done`)
		out := newReader()
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "ready")
		cmd.Process.Signal(syscall.SIGUSR1)
		cmd.Wait()
		if !strings.Contains(out.String(), "got it") || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("out %q, status %d", out.String(), cmd.ProcessState.ExitCode())
		}
	})
	t.Run("a client that is killed takes its command along", func(t *testing.T) {
		cmd := command(t, "exec", "-c", c, "sh", "-c", "echo ready; exec sleep 12345")
		out := newReader()
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "ready")
		cmd.Process.Kill()
		cmd.Wait()
		until(t, "the end of the command", func() bool {
			return nm(t, "exec", "-c", c, "sh", "-c", "ps -e -o args= | grep -c '[s]leep 12345'").code != 0
		})
	})
}

// What goes in comes out, and neither side grows.
func TestLargeStream(t *testing.T) {
	c := shared(t)
	const size = 256 << 20 // 1 GiB is what make bench-boot carries
	cmd := command(t, "exec", "-c", c, "cat")
	in := io.LimitReader(rand.New(rand.NewSource(1)), size)
	sent, got := sha256.New(), sha256.New()
	cmd.Stdin = io.TeeReader(in, sent)
	cmd.Stdout = got
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprintf("%x", sent.Sum(nil)), fmt.Sprintf("%x", got.Sum(nil)); a != b {
		t.Errorf("sent %s, got %s", a, b)
	}
}

func TestCopy(t *testing.T) {
	c := shared(t)
	cmd := command(t, "cp", "-c", c, "/etc/passwd", "vm1:/tmp/")
	finish(t, cmd, "").want(t, 0)
	back := command(t, "cp", "-c", c, "vm1:/tmp/passwd", "back")
	finish(t, back, "").want(t, 0)
	if out, err := exec.Command("cmp", "/etc/passwd", back.Dir+"/back").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	nm(t, "cp", "-c", c, "vm1:/nonexistent", "x").want(t, 125, "/nonexistent")
	nm(t, "cp", "-c", c, "a", "b").want(t, 2)
}

// A directory goes there and back with its modes, links and empty files; what cannot be
// copied is said before anything is.
func TestCopyDirectory(t *testing.T) {
	c := shared(t)
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", `cd "$0" && mkdir -p d/e "d/ x" && echo text >d/e/f && chmod 751 d/e/f && ln -s nowhere d/l && : >d/empty`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	nm(t, "cp", "-c", c, filepath.Join(dir, "d"), "vm1:/tmp/").want(t, 0)
	nm(t, "cp", "-c", c, "vm1:/tmp/d", filepath.Join(dir, "back")).want(t, 0)
	list := func(d string) string {
		out, err := exec.Command("sh", "-c", `cd "$0" && find . -printf '%p %y %m %U %l\n' | sort && cat e/f`, filepath.Join(dir, d)).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if d, back := list("d"), list("back"); d != back {
		t.Errorf("%s\nbecame\n%s", d, back)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "d/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	oneLine(t, nm(t, "cp", "-c", c, filepath.Join(dir, "d"), "vm1:/tmp/fifo").want(t, 125, "d/fifo"))
	nm(t, "exec", "-c", c, "--vm", "vm1", "--", "test", "-e", "/tmp/fifo").want(t, 1)
}
