package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
)

// The loss of VMs under `nearmetal run`.
func TestFaultQEMU(t *testing.T) {
	for _, f := range []struct {
		phase string
		all   bool
		quick bool
	}{
		{"booting", false, true},
		{"booting", true, true},
		{"running", false, true},
		{"running", true, false},
		{"ending", false, false},
	} {
		if !f.quick && !soak() {
			continue
		}
		name := f.phase + " one"
		if f.all {
			name = f.phase + " all"
		}
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			command := []string{"sh", "-c", "echo started; exec sleep 12345"}
			if f.phase == "ending" {
				command = []string{"true"}
			}
			v := p.start(append([]string{"run", "--name", "x", "--vms", "2", "--memory", "256MiB", "--no-share", "--"}, command...)...)
			var r *state.Record
			if f.phase == "running" {
				v.out.await(t, "vm0: started")
				v.out.await(t, "vm1: started")
				r = p.record("x")
			} else {
				r = v.reach("x", f.phase)
			}
			if f.all {
				unix.Kill(r.VMs[0].PID, unix.SIGKILL)
			}
			if pid := r.VMs[1].PID; pid > 0 {
				unix.Kill(pid, unix.SIGKILL)
			}
			switch {
			case f.phase == "ending":
				v.wantStatus(0) // the command had its say
			case f.all:
				v.wantStatus(125, "ended", "QEMU was killed (signal 9)")
			default:
				v.wantStatus(125, "vm1 ended", "QEMU was killed (signal 9)")
			}
			p.nothing()
		})
	}

	// A VM that was ready already is missed by nobody but the cluster's owner.
	t.Run("ready, the others booting", func(t *testing.T) {
		p := newPlace(t)
		v := p.start("run", "--name", "x", "--vms", "3", "--memory", "256MiB", "--no-share", "--", "sleep", "12345")
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s", v.errs)
			}
		})
		var first int
		until(t, "a VM that is ready", func() bool {
			select {
			case <-v.ended:
				t.Fatalf("it ended before a VM was ready: %s", v.errs)
			default:
			}
			r := p.record("x")
			for i := 0; r != nil && i < len(r.VMs); i++ {
				if r.VMs[i].State == state.Ready {
					first = r.VMs[i].PID
					return true
				}
			}
			return false
		})
		unix.Kill(first, unix.SIGKILL)
		v.wantStatus(125, "ended", "QEMU was killed (signal 9)")
		p.nothing()
	})
}

// The ways in which a VM can die from within, and what the others and the clients see.
func TestFaultVM(t *testing.T) {
	p := newPlace(t)
	p.up("x", "--vms", "4")
	r := p.record("x")

	t.Run("all processes but init are killed", func(t *testing.T) {
		e := p.exec("x", "vm1")
		k := p.start("exec", "-c", "x", "--vm", "vm1", "--as-root", "--", "sh", "-c", "kill -9 -1; kill -9 1; echo survived")
		k.wantStatus(0) // neither init nor the shell itself is a target
		e.wantStatus(128 + int(unix.SIGKILL))
		finish(t, p.command("exec", "-c", "x", "--vm", "vm1", "hostname"), "").want(t, 0, "vm1")
	})

	// A command of root's in a VM, after which the VM is gone.
	for _, f := range []struct{ vm, name, command, why, console string }{
		{"vm3", "panic", "echo c >/proc/sysrq-trigger", "vm3: has ended", "Kernel panic"},
		{"vm2", "reboot", "busybox reboot -f", "vm2: has ended", "reboot: Restarting"},
	} {
		t.Run(f.name, func(t *testing.T) {
			e := p.exec("x", f.vm)
			p.start("exec", "-c", "x", "--vm", f.vm, "--as-root", "--", "sh", "-c", f.command).wantStatus(125)
			e.wantStatus(125, f.why, f.console, "its console's last lines:\nnearmetal:   ")
			p.isDead("x", f.vm)
		})
	}
	t.Run("QEMU", func(t *testing.T) {
		e := p.exec("x", "vm1")
		unix.Kill(r.VMs[1].PID, unix.SIGKILL)
		e.wantStatus(125, "vm1")
		p.isDead("x", "vm1")
	})
	t.Run("the last one", func(t *testing.T) {
		finish(t, p.command("exec", "-c", "x", "hostname"), "").want(t, 0, "vm0")
		e := p.exec("x", "vm0")
		// The agent powers its VM off when it is asked to end; with no VM left the
		// supervisor ends the cluster.
		p.start("exec", "-c", "x", "--as-root", "--", "sh", "-c", "kill -TERM 1; exec sleep 12345").wait()
		e.wantStatus(125, "vm0")
		until(t, "the end of the cluster", func() bool { return p.left() == nil })
		p.nothing()
	})
}

// isDead fails unless a VM is shown as dead, and refuses commands by its name.
func (p *place) isDead(name, vm string) {
	p.t.Helper()
	until(p.t, vm+" in ps as dead", func() bool {
		for _, v := range p.record(name).VMs {
			if v.Name == vm {
				return v.State == state.Dead && v.PID == 0
			}
		}
		return false
	})
	r := finish(p.t, p.command("exec", "-c", name, "--vm", vm, "true"), "")
	if r.code != 125 || !strings.HasPrefix(r.err, "nearmetal: "+vm+" ended") || strings.Count(r.err, vm+" ended") != 1 ||
		!strings.Contains(r.err, "nearmetal logs "+name+"/"+vm) || strings.Count(r.err, "\n") != 1 {
		p.t.Errorf("exec in it: %+v", r)
	}
	if r := finish(p.t, p.command("ps"), ""); !strings.Contains(r.out, "degraded") {
		p.t.Errorf("ps: %+v", r)
	}
}

// An MPI launcher on the host with its ranks in VMs.
func TestFaultLauncher(t *testing.T) {
	start := func(t *testing.T) *victim {
		v := newPlace(t).start("run", "--name", "x", "--vms", "2", "--memory", "512MiB", "--no-share", "--",
			"mpirun", "--allow-run-as-root", "-n", "2", "--map-by", "node", "sh", "-c", "echo started; exec sleep 12345")
		until(t, "both ranks", func() bool {
			select {
			case <-v.ended:
				t.Fatalf("mpirun ended\n%s%s", v.out, v.errs)
			default:
			}
			return strings.Count(v.out.String(), "started") == 2
		})
		return v
	}
	launcher := func(v *victim) int {
		v.t.Helper()
		// Open MPI 5's mpirun becomes prterun.
		for _, pid := range append(v.find("mpirun", "12345"), v.find("prterun", "12345")...) {
			if pid != v.cmd.Process.Pid {
				return pid
			}
		}
		v.t.Fatal("no mpirun on the host")
		return 0
	}
	t.Run("nearmetal killed", func(t *testing.T) {
		v := start(t)
		launcher(v)
		v.signal(unix.SIGKILL)
		v.wantStatus(128 + int(unix.SIGKILL))
		v.swept("x")
	})
	t.Run("mpirun killed", func(t *testing.T) {
		v := start(t)
		unix.Kill(launcher(v), unix.SIGKILL)
		v.wantStatus(128 + int(unix.SIGKILL))
		v.nothing()
	})
	if !soak() {
		return
	}
	t.Run("a VM killed", func(t *testing.T) {
		v := start(t)
		unix.Kill(v.record("x").VMs[1].PID, unix.SIGKILL)
		v.wantStatus(125, "vm1 ended", "QEMU was killed (signal 9)")
		v.nothing()
	})
	t.Run("remote shell killed", func(t *testing.T) {
		v := start(t)
		shells := v.find("nearmetal-rsh")
		if len(shells) == 0 {
			t.Fatal("no remote shell")
		}
		unix.Kill(shells[0], unix.SIGKILL)
		if v.wait() == 0 {
			t.Error("mpirun ended well without one of its daemons")
		}
		v.nothing()
	})
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			v := start(t)
			begin := time.Now()
			v.signal(s)
			if v.wait() == 0 {
				t.Error("exit status 0")
			}
			t.Logf("status %d after %v", v.wait(), time.Since(begin))
			v.nothing()
		})
	}
}
