package process

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sh(script string) Command {
	return Command{Args: []string{"sh", "-c", script}, Env: os.Environ()}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	c := sh("echo $A; pwd; echo e >&2; exit 3")
	c.Env, c.Dir = append(c.Env, "A=7"), dir
	r, err := Run(context.Background(), c)
	if err != nil || string(r.Out) != "7\n"+dir+"\n" || string(r.Err) != "e\n" || r.Status != "exit status 3" || r.Seconds <= 0 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Run(context.Background(), Command{Args: []string{"/no/such"}}); err == nil {
		t.Error("a program that is missing was started")
	}
}

// TestHang: processes that a hanging program started are killed with it, although they left the process group.
func TestHang(t *testing.T) {
	c := sh("set -m; sleep 1000 & echo $!; wait")
	c.Timeout = 300 * time.Millisecond
	r, err := Run(context.Background(), c)
	if err != nil || !r.TimedOut || !strings.Contains(r.Status, "killed after 300ms") {
		t.Fatalf("%+v %v", r, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(r.Out)))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(text), ") Z ") && syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d lives on: %s", pid, text)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, sh("sleep 1000")); err != context.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

func TestLeftBehind(t *testing.T) {
	begin := time.Now()
	r, err := Run(context.Background(), sh("sleep 1000 & echo done"))
	if err != nil || string(r.Out) != "done\n" || time.Since(begin) > 30*time.Second {
		t.Errorf("%+v %v", r, err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	r, err := Run(context.Background(), sh("head -c 20000000 /dev/zero"))
	if err != nil || !r.Cut || len(r.Out) != MaxOutput {
		t.Errorf("%d bytes, cut %v, %v", len(r.Out), r.Cut, err)
	}
}

func TestCPUs(t *testing.T) {
	r, err := Run(context.Background(), Command{Args: []string{"nproc"}, Env: os.Environ(), CPUs: []int{0}})
	if err != nil || strings.TrimSpace(string(r.Out)) != "1" {
		t.Errorf("%q %v", r.Out, err)
	}
}
