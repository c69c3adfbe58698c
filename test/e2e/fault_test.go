package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
)

// Fault tests kill what belongs to a cluster, at every phase of its life, and look for what
// is left. The phases are those that the cluster's record shows. What runs by default is a
// choice; NEARMETAL_SOAK=1 (make soak) runs the whole matrix.

func soak() bool { return os.Getenv("NEARMETAL_SOAK") == "1" }

// A VM whose QEMU is stopped does not answer. ps says so, and a command in it can be left: by a signal after a while, by a
// second one at once.
func TestSilentVM(t *testing.T) {
	name := up(t, "-q", "--no-share", "--memory", "256MiB")
	var r state.Record
	if err := json.Unmarshal([]byte(nm(t, "ps", name, "--json").want(t, 0).out), &r); err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd, said := command(t, "exec", name, "--", "sh", "-c", "trap '' INT TERM; echo here; sleep 1000"), newReader()
		cmd.Stdout = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said.await(t, "here")
		return cmd
	}
	once := start()
	twice := start()
	t.Cleanup(func() { unix.Kill(r.VMs[0].PID, unix.SIGCONT) })
	unix.Kill(r.VMs[0].PID, unix.SIGSTOP)
	nm(t, "ps", name).want(t, 0, "vm0  silent")
	nm(t, "ps").want(t, 0, "silent")
	ended := make(chan struct{})
	go func() { twice.Wait(); close(ended) }()
	until(t, "the end after a second signal", func() bool {
		twice.Process.Signal(unix.SIGINT)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	once.Process.Signal(unix.SIGTERM)
	once.Wait()
	for cmd, want := range map[*exec.Cmd]int{once: 128 + int(unix.SIGTERM), twice: 128 + int(unix.SIGINT)} {
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%v: exit status %d, want %d", cmd.Args, got, want)
		}
	}
	unix.Kill(r.VMs[0].PID, unix.SIGCONT)
	until(t, "the VM answers again", func() bool { return strings.Contains(nm(t, "ps", name).out, "vm0  ready") })
}

// Two signals in a row reach a command in a VM that answers: its own end is waited for.
func TestTwoSignals(t *testing.T) {
	cmd, said := command(t, "exec", shared(t), "--", "sh", "-c", "trap 'sleep 1; exit 7' INT TERM; echo here; while :; do sleep 0.1; done"), newReader()
	cmd.Stdout = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.await(t, "here")
	cmd.Process.Signal(unix.SIGINT)
	cmd.Process.Signal(unix.SIGTERM)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Errorf("exit status %d, want 7", got)
	}
}

// place is a directory of clusters of a test's own, so that it can tell what is its.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp(runtime, "f")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t, dir}
	t.Cleanup(func() {
		if t.Failed() { // let no VM run on beside the tests that follow
			for _, pid := range p.processes() {
				unix.Kill(pid, unix.SIGKILL)
			}
			finish(t, p.command("ps"), "")
		}
		os.RemoveAll(dir)
	})
	return p
}

// command prepares nearmetal with this place's directory of clusters.
func (p *place) command(args ...string) *exec.Cmd { return p.program(nearmetal, args...) }

// program is the same with another build of nearmetal.
func (p *place) program(path string, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := command(p.t, args...)
	cmd.Path = path
	// Launchers keep files of their own in TMPDIR, which a killed one leaves.
	cmd.Env = append(os.Environ(), "NEARMETAL_RUNTIME_DIR="+p.dir, "TMPDIR="+cmd.Dir)
	return cmd
}

// victim is a nearmetal that runs, to be killed.
type victim struct {
	*place
	cmd       *exec.Cmd
	out, errs *reader
	ended     chan struct{}
}

func (p *place) start(args ...string) *victim {
	p.t.Helper()
	return p.launch(p.command(args...))
}

func (p *place) launch(cmd *exec.Cmd) *victim {
	p.t.Helper()
	v := &victim{place: p, cmd: cmd, out: newReader(), errs: newReader(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = v.out, v.errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { cmd.Wait(); close(v.ended) }()
	return v
}

// wait returns the exit status as a shell would tell it.
func (v *victim) wait() int {
	v.t.Helper()
	<-v.ended
	ws := v.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		if ws.Signal() == unix.SIGQUIT {
			v.t.Fatalf("%v did not end\n%s", v.cmd.Args[1:], v.errs)
		}
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (v *victim) signal(s syscall.Signal) { v.cmd.Process.Signal(s) }

// wantStatus waits for the end and its status, and for words in what was said.
func (v *victim) wantStatus(code int, words ...string) {
	v.t.Helper()
	got := v.wait()
	if got != code {
		v.t.Errorf("exit status %d, want %d\nstdout: %s\nstderr: %s", got, code, v.out, v.errs)
	}
	for _, w := range words {
		if !strings.Contains(v.errs.String(), w) {
			v.t.Errorf("%q is missing in what it said:\n%s", w, v.errs)
		}
	}
	if strings.Contains(v.errs.String(), "internal error") || strings.Contains(v.errs.String(), "goroutine ") {
		v.t.Errorf("a panic:\n%s", v.errs)
	}
}

// record reads the record of a cluster; nil where there is none.
func (p *place) record(name string) *state.Record {
	b, err := os.ReadFile(filepath.Join(p.dir, name, "record.json"))
	if err != nil {
		return nil
	}
	r := &state.Record{}
	if err := json.Unmarshal(b, r); err != nil {
		p.t.Fatalf("record.json is not whole: %v", err)
	}
	return r
}

// The phases of a cluster's life, as its record shows them.
var phases = map[string]func(*state.Record) bool{
	"preparing": func(r *state.Record) bool { return r.State == state.Booting },
	"booting": func(r *state.Record) bool {
		for _, v := range r.VMs {
			if v.PID == 0 {
				return false
			}
		}
		return r.State == state.Booting && len(r.VMs) > 0
	},
	"ready":  func(r *state.Record) bool { return r.State == state.Ready },
	"ending": func(r *state.Record) bool { return r.State == state.Ending },
}

// reach waits until the cluster called name is in a phase, and returns its record.
func (v *victim) reach(name, phase string) *state.Record {
	v.t.Helper()
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if r := v.record(name); r != nil && phases[phase](r) {
			return r
		}
		select {
		case <-v.ended:
			if phase != "ready" || v.cmd.Args[1] != "up" {
				v.t.Fatalf("%v ended before it was %s\n%s", v.cmd.Args[1:], phase, v.errs)
			}
		default:
		}
	}
	v.t.Fatalf("cluster %s was not %s after %v\n%s", name, phase, bound, v.errs)
	return nil
}

// processes of this place: all that inherited its environment.
func (p *place) processes() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err == nil && bytes.Contains(env, []byte("NEARMETAL_RUNTIME_DIR="+p.dir+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// find returns the processes of this place that have the words in their command line.
func (p *place) find(words ...string) []int {
	var pids []int
next:
	for _, pid := range p.processes() {
		line := commandLine(pid)
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		pids = append(pids, pid)
	}
	return pids
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// gone waits until no process of this place runs: those that die with another take a moment.
func (p *place) gone() {
	p.t.Helper()
	for end := time.Now().Add(bound / 4); ; time.Sleep(10 * time.Millisecond) {
		pids := p.processes()
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			for _, pid := range pids {
				p.t.Errorf("process %d is left: %.200s", pid, commandLine(pid))
			}
			return
		}
	}
}

// left says what there is of this place's clusters besides processes.
func (p *place) left() []string {
	var left []string
	entries, _ := os.ReadDir(p.dir)
	for _, e := range entries {
		if e.Name() != ".lock" {
			left = append(left, e.Name())
		}
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		if strings.HasPrefix(i.Name, "nm-") { // no other test of this package has any
			left = append(left, "interface "+i.Name)
		}
	}
	shm, _ := filepath.Glob("/dev/shm/nearmetal-" + strings.Repeat("[0-9a-f]", 32)) // internal/region
	left = append(left, shm...)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if bytes.Contains(mounts, []byte(p.dir)) {
		left = append(left, "a mount")
	}
	return left
}

// nothing fails if anything of this place is left: its cluster was ended in good order.
func (p *place) nothing() {
	p.t.Helper()
	p.gone()
	if left := p.left(); left != nil {
		p.t.Errorf("left behind: %v", left)
	}
}

// swept is for owners that were killed: their processes are gone by themselves, the rest
// goes with the next command, which says so in a line for each of the clusters.
func (p *place) swept(names ...string) string {
	p.t.Helper()
	p.gone()
	r := finish(p.t, p.command("ps"), "").want(p.t, 0)
	for _, name := range names {
		if n := strings.Count(r.err, "removed what cluster "+name+" left"); n != 1 {
			p.t.Errorf("%d lines say that %s was removed:\n%s", n, name, r.err)
		}
	}
	if n := strings.Count(r.err, "\n"); n != len(names) {
		p.t.Errorf("%d lines for %d clusters:\n%s", n, len(names), r.err)
	}
	p.nothing()
	return r.err
}

// exec starts a command in a VM that says "started" and stays, and waits for that.
func (p *place) exec(name, vm string) *victim {
	p.t.Helper()
	v := p.start("exec", "-c", name, "--vm", vm, "sh", "-c", "echo started; exec sleep 12345")
	v.out.await(p.t, "started")
	return v
}

// up starts a cluster and waits until it is ready.
func (p *place) up(name string, args ...string) {
	p.t.Helper()
	cmd := p.command(append([]string{"up", "--name", name, "--no-share", "--memory", "256MiB"}, args...)...)
	finish(p.t, cmd, "").want(p.t, 0)
}
