package e2e

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Starts that are killed at a random moment leave nothing behind one `nearmetal ps`.
// NEARMETAL_SEED repeats a failure as far as the machine's load allows.
func TestFaultRandom(t *testing.T) {
	seed := time.Now().UnixNano()
	if s := os.Getenv("NEARMETAL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("NEARMETAL_SEED=%d", seed)
	rng := rand.New(rand.NewSource(seed))
	n := 8
	if soak() {
		n = 60
	}
	p := newPlace(t)
	signals := []syscall.Signal{unix.SIGKILL, unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}
	for i := 0; i < n; i++ {
		name := fmt.Sprint("x", i)
		command, after := "run", []string{"--", "true"}
		if rng.Intn(3) == 0 {
			command, after = "up", nil
		}
		args := append([]string{command, "--name", name, "--vms", "2", "--memory", "256MiB", "--no-share"}, after...)
		s := signals[rng.Intn(len(signals))]
		// Most moments of interest are early; a quarter of the kills come when VMs boot or run.
		moment := time.Duration(rng.ExpFloat64() * float64(700*time.Millisecond))
		v := p.start(args...)
		select {
		case <-time.After(moment):
		case <-v.ended:
		}
		whom := v.cmd.Process.Pid
		if r := p.record(name); command == "up" && r != nil && rng.Intn(2) == 0 {
			whom = r.Owner // the supervisor
		}
		unix.Kill(whom, s)
		v.wait()
		t.Logf("%s %v after %v: status %d", command, s, moment.Round(time.Millisecond), v.wait())
		// One that was up and ready before its signal came stays, as it should; so does one
		// whose supervisor learns that a terminal has hung up, which it has none of.
		if v.wait() == 0 && command == "up" && (whom == v.cmd.Process.Pid || s == unix.SIGHUP) {
			finish(t, p.command("down", name), "").want(t, 0)
		}
		if strings.Contains(v.errs.String(), "goroutine ") || strings.Contains(v.errs.String(), "internal error") {
			t.Errorf("a panic:\n%s", v.errs)
		}
	}
	p.gone()
	r := finish(t, p.command("ps"), "").want(t, 0)
	t.Logf("ps said:\n%s", r.err)
	if left := p.left(); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
