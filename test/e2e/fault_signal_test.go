package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals to `nearmetal run`, at each phase.
func TestFaultSignals(t *testing.T) {
	type fault struct {
		phase   string
		signals []syscall.Signal
		quick   bool // part of the choice that always runs
	}
	kill, term, hup, intr := unix.SIGKILL, unix.SIGTERM, unix.SIGHUP, unix.SIGINT
	one := func(s ...syscall.Signal) []syscall.Signal { return s }
	list := []fault{
		{"preparing", one(kill), true},
		{"preparing", one(term), true},
		{"preparing", one(hup), false},
		{"preparing", one(intr), true},
		{"preparing", one(intr, intr), false},
		{"booting", one(kill), true},
		{"booting", one(term), true},
		{"booting", one(hup), true},
		{"booting", one(intr), true},
		{"booting", one(intr, intr), true},
		{"running", one(kill), false}, // TestFaultLauncher does it
		{"running", one(term), true},
		{"running", one(hup), false},
		{"running", one(intr), false},
		{"running", one(intr, intr), true},
		{"ending", one(kill), true},
		{"ending", one(term), false},
		{"ending", one(hup), false},
		{"ending", one(intr), true},
	}
	for _, f := range list {
		if !f.quick && !soak() {
			continue
		}
		t.Run(f.phase+fmt.Sprint(f.signals), func(t *testing.T) {
			p := newPlace(t)
			args := []string{"run", "--name", "x", "--vms", "2", "--memory", "256MiB", "--no-share", "--"}
			switch {
			case f.phase == "ending":
				args = append(args, "true")
			case len(f.signals) == 2: // one signal must not end it
				args = append(args, "sh", "-c", "trap 'echo heard' INT; echo started; while :; do sleep 1; done")
			default:
				args = append(args, "sh", "-c", "echo started; exec sleep 12345")
			}
			v := p.start(args...)
			if f.phase == "running" {
				v.out.await(t, "vm0: started")
				v.out.await(t, "vm1: started")
			} else {
				v.reach("x", f.phase)
			}
			for i, s := range f.signals {
				if i > 0 && f.phase == "running" {
					v.out.await(t, "heard") // two signals at once would count as one
				}
				v.signal(s)
			}
			status := 128 + int(f.signals[0])
			if f.phase == "ending" && f.signals[0] != kill {
				status = 0 // the command's; the signal only makes the end quicker
			}
			v.wantStatus(status)
			if f.signals[0] == kill {
				p.swept("x")
				return
			}
			p.nothing()
			if strings.Contains(v.errs.String(), "context canceled") {
				t.Errorf("it said: %s", v.errs)
			}
		})
	}
}

// Signals and kills of `nearmetal up` and its supervisor.
func TestFaultUp(t *testing.T) {
	start := func(t *testing.T) *victim {
		return newPlace(t).start("up", "--name", "x", "--vms", "2", "--memory", "256MiB", "--no-share")
	}
	for _, s := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGHUP, unix.SIGINT} {
		for _, phase := range []string{"preparing", "booting"} {
			if quick := phase == "booting" && (s == unix.SIGKILL || s == unix.SIGINT); !quick && !soak() {
				continue
			}
			t.Run(fmt.Sprintf("up %s %v", phase, s), func(t *testing.T) {
				v := start(t)
				v.reach("x", phase)
				v.signal(s)
				v.wantStatus(128 + int(s))
				v.nothing() // its supervisor has seen to that
			})
		}
	}
	t.Run("supervisor asked to end while booting", func(t *testing.T) {
		v := start(t)
		r := v.reach("x", "booting")
		unix.Kill(r.Owner, unix.SIGTERM)
		v.wantStatus(125, "the supervisor was asked to end")
		v.nothing()
	})
	t.Run("supervisor killed while booting", func(t *testing.T) {
		v := start(t)
		r := v.reach("x", "booting")
		unix.Kill(r.Owner, unix.SIGKILL)
		v.wantStatus(125, "the supervisor ended before the cluster was ready")
		v.swept("x")
	})
	t.Run("supervisor killed when ready", func(t *testing.T) {
		v := start(t)
		v.wantStatus(0)
		r := v.record("x")
		e := v.exec("x", "vm1")
		unix.Kill(r.Owner, unix.SIGKILL)
		e.wantStatus(125, "cluster x")
		if r := finish(t, v.command("exec", "-c", "x", "true"), ""); r.code != 125 || !strings.Contains(r.err, `no cluster "x" runs`) {
			t.Errorf("exec after that: %+v", r)
		}
		v.swept("x")
	})
	if !soak() {
		return // the rest goes the way of nearmetal down, which other tests go
	}
	t.Run("supervisor asked to end when ready", func(t *testing.T) {
		v := start(t)
		v.wantStatus(0)
		r := v.record("x")
		e := v.exec("x", "vm1")
		unix.Kill(r.Owner, unix.SIGTERM)
		e.wantStatus(125)
		v.nothing()
	})
}
