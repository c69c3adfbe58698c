package commands

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// stopped reports whether a process stands still.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')')+1:]), " T")
}

func TestPause(t *testing.T) {
	lab(t)
	c := up(t, "still", 2)
	do := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := answer(t, args...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%q: %d, %q, %q; want %d, %q", args, got, out, errs, code, want)
		}
	}
	all := func(want bool) {
		t.Helper()
		for _, v := range c.Record().VMs {
			if stopped(t, v.PID) != want {
				t.Errorf("%s stands still: %v, want %v", v.Name, !want, want)
			}
		}
	}
	do(0, "", "pause", "still")
	all(true)
	do(0, "", "pause") // again: the only cluster
	do(0, "paused", "ps")
	const refused = "cluster still is paused: nearmetal resume still"
	do(125, refused, "exec", "still", "--", "true")
	do(125, refused, "cp", "still/vm0:/etc/hostname", t.TempDir())
	do(125, refused, "verify")
	do(2, "is about a whole cluster", "pause", "still/vm0")
	do(0, "", "resume", "still")
	all(false)
	do(0, "", "resume", "still") // again
	do(0, "ready", "ps")
	do(0, "", "exec", "still", "--", "true")

	// A paused cluster ends as any other, with its agents' help.
	do(0, "", "pause", "still")
	pids := []int{c.Record().VMs[0].PID, c.Record().VMs[1].PID}
	go func() {
		<-c.Asked()
		c.Down(context.Background())
	}()
	began := time.Now()
	do(0, "", "down", "still")
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil && !stopped(t, pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	t.Logf("ended after %v", time.Since(began))
}
