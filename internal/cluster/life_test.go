package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/fake"
	"nearmetal/internal/spec"
	"nearmetal/internal/verify"
)

// These tests are of the life of a cluster, on VMs that are processes (backend/fake): real agents, a
// real channel, control socket, record and journal.

// patience bounds a wait on a busy machine; on an idle one it is milliseconds.
const patience = time.Minute

// lab is a directory of clusters and one of fake VMs.
type lab struct {
	t    *testing.T
	base string
	o    fake.Options
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if err := fake.Works(); err != nil {
		if os.Getenv("CI") != "" && !errors.Is(err, fake.ErrUser) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// Not of t.TempDir: a control socket's path is short.
	dir, err := os.MkdirTemp("", "nm-life")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	t.Setenv("NEARMETAL_CLUSTER", "")
	l := &lab{t: t, base: dir, o: fake.Options{Dir: t.TempDir()}}
	t.Cleanup(l.empty)
	return l
}

// spec is a cluster file of n VMs as the commands hand it on.
func (l *lab) spec(n int) *spec.Cluster {
	c := &spec.Cluster{Name: "life", Backend: l.o.Name(), VMs: []spec.Group{{Name: "vm", Count: n, VCPUs: 1, Memory: 128 << 20}}}
	spec.Defaults(c)
	if err := spec.Validate(c); err != nil {
		l.t.Fatal(err)
	}
	return c
}

// up starts a cluster; the test ends it if nothing else does.
func (l *lab) up(s *spec.Cluster, o Options) (*Cluster, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.Backend = l.o.Name()
	o.Spec = s
	c, err := Up(ctx, o)
	if err == nil {
		l.t.Cleanup(func() { l.down(c) })
	}
	return c, err
}

// must is up without an error.
func (l *lab) must(n int) *Cluster {
	l.t.Helper()
	c, err := l.up(l.spec(n), Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) down(c *Cluster) {
	l.t.Helper()
	if err := c.Down(context.Background()); err != nil {
		l.t.Error(err)
	}
}

// made are the VMs that the hypervisor has.
func (l *lab) made() []string {
	l.t.Helper()
	list, err := os.ReadDir(l.o.Dir)
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// empty fails if anything is left: a VM, its process, or a cluster's directory.
func (l *lab) empty() {
	l.t.Helper()
	if made := l.made(); len(made) > 0 {
		l.t.Errorf("left behind: %q", made)
	}
	if dirs, _ := filepath.Glob(filepath.Join(l.base, "[^.]*")); len(dirs) > 0 {
		l.t.Errorf("left behind: %q", dirs)
	}
}

// pids are the processes of a cluster's VMs.
func pids(r Record) (list []int) {
	for _, v := range r.VMs {
		list = append(list, v.PID)
	}
	return list
}

// gone fails unless the processes end.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		unix.Close(fd)
		if n != 1 {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// await receives from c within the test's patience.
func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
	return v
}

func TestUpDown(t *testing.T) {
	l := newLab(t)
	c := l.must(3)
	r := c.Record()
	if r.State != Ready || len(r.VMs) != 3 || r.VMs[2].State != Ready || r.VMs[2].IP != "10.77.0.3" || !r.VMs[2].Uplink || r.Survives {
		t.Errorf("%+v", r)
	}
	if len(l.made()) != 3 {
		t.Errorf("made: %q", l.made())
	}
	cl, err := Connect(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	// The back end has no Inspector: verify says so. What it asks of the guests is this host's answer.
	rep, err := cl.Verify(context.Background())
	if err != nil || !rep.Guest || len(rep.Rows) < 6 || rep.Rows[0].Status != verify.Note || !strings.Contains(rep.Rows[0].Found, "no way to") {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, v := range c.vms {
		if _, err := v.agent.Ping(context.Background()); err != nil {
			t.Error(err)
		}
	}
	asked := make(chan error, 1)
	go func() { asked <- cl.Down(context.Background()) }()
	await(t, "the wish for the end", c.Asked())
	l.down(c)
	if err := await(t, "the client's answer", asked); err != nil {
		t.Error(err)
	}
	await(t, "the end of the last VM", c.Died())
	gone(t, pids(r))
}

// A VM that dies is reported by its name; the others run on.
func TestVMDies(t *testing.T) {
	l := newLab(t)
	c := l.must(2)
	unix.Kill(-c.Record().VMs[1].PID, unix.SIGKILL)
	err := await(t, "the loss", c.Lost())
	var lost *VMError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "vm1 ended: its process ended: signal: killed") {
		t.Errorf("%v", err)
	}
	if len(lost.Console) == 0 || lost.Console[len(lost.Console)-1] != "fake VM vm1 is up" {
		t.Errorf("console %q", lost.Console)
	}
	r := c.Record()
	if r.VMs[0].State != Ready || r.VMs[1].State != Dead || r.VMs[1].PID != 0 {
		t.Errorf("%+v", r.VMs)
	}
	if _, err := c.vms[0].agent.Ping(context.Background()); err != nil {
		t.Errorf("the other: %v", err)
	}
}

// Whoever loses a VM's channel finds in Lost why the VM ended, though the record takes its time.
func TestLostBeforeChannel(t *testing.T) {
	l := newLab(t)
	c := l.must(2)
	v := c.vms[1]
	found := make(chan error, 1)
	go func() {
		<-v.agent.Mux().Done()
		select {
		case err := <-c.Lost():
			found <- err
		default:
			found <- nil
		}
	}()
	c.mu.Lock()
	unix.Kill(c.rec.VMs[1].PID, unix.SIGKILL)
	<-v.inst.Done()
	select {
	case <-v.agent.Mux().Done():
	case <-time.After(100 * time.Millisecond): // of a record that is written slowly
	}
	c.mu.Unlock()
	if err := await(t, "the channel's end", found); err == nil || !strings.Contains(err.Error(), "vm1 ended") {
		t.Errorf("the channel ended first: %v", err)
	}
}

// An agent that hangs does not keep its VM: it is ended when the time to power off is up.
func TestDownHung(t *testing.T) {
	l := newLab(t)
	c := l.must(2)
	list := pids(c.Record())
	stop(t, list[0])
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := c.Down(ctx); err != nil {
		t.Error(err)
	}
	gone(t, list)
}

// An agent that never speaks ends the start when its time is up, with nothing left.
func TestAgentHangs(t *testing.T) {
	l := newLab(t)
	l.o.Mute = "vm1"
	_, err := l.up(l.spec(2), Options{BootTimeout: 500 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "not ready after 500ms (--boot-timeout)") {
		t.Errorf("%v", err)
	}
	l.empty()
}

// A VM that dies before its agent speaks ends the start at once, by name.
func TestVMDiesBooting(t *testing.T) {
	l := newLab(t)
	l.o.Mute = "vm1"
	_, err := l.up(l.spec(2), Options{BootTimeout: patience, Events: Events{Stage: func(name string, done, total int) {
		if name == StageBoot && done == 1 { // vm0 is ready: vm1 is there
			r, err := Find("life")
			if err != nil {
				t.Error(err)
				return
			}
			unix.Kill(-r.VMs[1].PID, unix.SIGKILL)
		}
	}}})
	if err == nil || !strings.Contains(err.Error(), "vm1 ended while the cluster booted") {
		t.Errorf("%v", err)
	}
	l.empty()
}

// A start that fails half way leaves nothing, neither of the VM that failed nor of the others.
func TestStartFails(t *testing.T) {
	l := newLab(t)
	l.o.Refuse = "vm1"
	_, err := l.up(l.spec(3), Options{})
	if err == nil || err.Error() != "VM vm1: it is to be refused" {
		t.Errorf("%v", err)
	}
	l.empty()
}

// A caller that cancels has its own reason as the error, and nothing is left.
func TestUpInterrupted(t *testing.T) {
	l := newLab(t)
	l.o.Mute = "vm0"
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("Ctrl-C")
	_, err := Up(ctx, Options{Spec: l.spec(1), Events: Events{Stage: func(name string, _, _ int) {
		if name == StageBoot {
			cancel(stop)
		}
	}}})
	if !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	l.empty()
}

// A VM stops when all that hold it ask for that, and goes on with the first that does not.
func TestPause(t *testing.T) {
	l := newLab(t)
	c := l.must(1)
	pid := c.Record().VMs[0].PID
	state := func() string { return processState(t, pid) }
	if err := c.Pause(); err != nil || state() != "T" {
		t.Errorf("by the owner alone: %v, state %s", err, state())
	}
	if err := c.Resume(); err != nil || state() == "T" {
		t.Errorf("and on again: %v, state %s", err, state())
	}
	cl, err := Connect(context.Background(), "life")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	one, err := cl.Pauser("vm0")
	if err != nil {
		t.Fatal(err)
	}
	two, err := cl.Pauser("vm0")
	if err != nil {
		t.Fatal(err)
	}
	pause := func(p *Pauser, stop bool, want string) {
		t.Helper()
		if err := p.Pause(stop); err != nil {
			t.Fatal(err)
		}
		if got := state(); (got == "T") != (want == "T") {
			t.Errorf("state %s, want %s", got, want)
		}
	}
	pause(two, false, "S")
	pause(one, true, "S")
	pause(two, true, "T")
	if err := c.Resume(); err != nil || state() != "T" {
		t.Errorf("the owner never held it: %v, state %s", err, state())
	}
	pause(one, false, "S")
	// The owner alone is not enough while a client keeps the VM running.
	if err := c.Pause(); err == nil || !strings.Contains(err.Error(), "cannot stop vm0: a client keeps it running") || state() == "T" {
		t.Errorf("%v, state %s", err, state())
	}
	pause(one, true, "T")
	if err := c.Pause(); err != nil {
		t.Error(err)
	}
	if err := c.Resume(); err != nil || state() != "T" {
		t.Errorf("two clients hold it: %v, state %s", err, state())
	}
	pause(two, false, "S")
}

// processState is the state of a process: S, T, …
func processState(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b[bytes.LastIndexByte(b, ')')+2])
}

// stop stops a process that may be busy, and waits until it has stopped. It is no child of the test's:
// there is nothing but its state to wait for.
func stop(t *testing.T, pid int) {
	t.Helper()
	unix.Kill(pid, unix.SIGSTOP)
	for end := time.Now().Add(patience); processState(t, pid) != "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// What the file demands and the back end lacks is one error, before anything is made.
func TestBackendLacks(t *testing.T) {
	for _, x := range []struct {
		lacks  []backend.Cap
		change func(*spec.Cluster)
		want   string
	}{
		{[]backend.Cap{backend.CapHostFiles}, nil, "cannot show files of this host to VMs, which root: host needs"},
		{[]backend.Cap{backend.CapStream}, nil, "cannot join VMs by links between them, which network: auto needs"},
		{[]backend.Cap{backend.CapPins}, func(c *spec.Cluster) { c.Placement.Pin = "always" }, "cannot put vCPUs on chosen CPUs, which placement: {pin: always} needs"},
		{nil, func(c *spec.Cluster) { s := spec.Size(1 << 20); c.Region.Size = &s }, "cannot share memory between VMs, which region: 1MiB needs: it has no VMs"},
	} {
		l := newLab(t)
		l.o.Lacks = x.lacks
		s := l.spec(2)
		if x.change != nil {
			x.change(s)
		}
		_, err := l.up(s, Options{})
		var lacks backend.Lacks
		if !errors.As(err, &lacks) || !strings.HasPrefix(err.Error(), "back end fake cannot") || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v\nwant %s", err, x.want)
		}
		l.empty()
	}
}

// A back end with disks of its own needs no files of this host's: root: backend starts VMs that get
// none. Where either is missing, the error says which root there is.
func TestOwnDisk(t *testing.T) {
	l := newLab(t)
	l.o.OwnDisk, l.o.Lacks = true, []backend.Cap{backend.CapHostFiles}
	s := l.spec(2)
	s.Root = spec.RootBackend
	c, err := l.up(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Record(); r.Backend != l.o.Name() || r.Running() != 2 || len(exports(s)) != 0 {
		t.Errorf("%+v", r)
	}
	l.down(c)
	_, err = l.up(l.spec(2), Options{})
	if err == nil || !strings.Contains(err.Error(), "which root: host needs: write root: backend, and no shares") {
		t.Errorf("%v", err)
	}
	l.o.OwnDisk, l.o.Lacks = false, nil
	s = l.spec(2)
	s.Root = spec.RootBackend
	_, err = l.up(s, Options{})
	if err == nil || err.Error() != "back end fake cannot start VMs from a disk of its own, which root: backend needs" {
		t.Errorf("%v", err)
	}
}

// What the file leaves open is left out where the back end lacks it.
func TestLeftOut(t *testing.T) {
	l := newLab(t)
	l.o.Lacks = []backend.Cap{backend.CapUserNetwork, backend.CapPins, backend.CapVFIO}
	c := l.must(2)
	r := c.Record()
	if r.VMs[0].Uplink || r.Plan.Region != nil || len(r.Plan.VMs[0].Pins) != 0 {
		t.Errorf("%+v", r)
	}
}

// A back end with a network of its own joins the VMs, and what it made for that goes with them.
func TestOwnNetwork(t *testing.T) {
	l := newLab(t)
	l.o.Network = true
	l.o.Lacks = []backend.Cap{backend.CapUserNetwork}
	c := l.must(3)
	if r := c.Record(); r.VMs[2].IP != "192.0.2.12" || r.VMs[2].Subnet != "192.0.2.0/24" || r.VMs[2].Uplink {
		t.Errorf("%+v", r.VMs[2])
	}
	if len(l.made()) != 4 {
		t.Errorf("made: %q, want three VMs and a network", l.made())
	}
}

// What a back end says of its network is looked at.
func TestOwnNetworkChecked(t *testing.T) {
	at := netip.MustParsePrefix
	good := backend.Card{MAC: "52:54:00:00:00:01", Address: at("192.0.2.1/24")}
	for _, x := range []struct {
		second backend.Card
		want   string
	}{
		{backend.Card{MAC: "52:54:00:00:00:02"}, "is no IPv4 address"},
		{backend.Card{MAC: "52:54:00:00:00:02", Address: at("2001:db8::1/64")}, "is no IPv4 address"},
		{backend.Card{MAC: "53:54:00:00:00:02", Address: at("192.0.2.2/24")}, "no unicast MAC"},
		{backend.Card{MAC: "52:54:00:00:00:01", Address: at("192.0.2.2/24")}, "another VM's"},
		{backend.Card{MAC: "52:54:00:00:00:02", Address: at("192.0.2.1/24")}, "another VM's"},
	} {
		if _, err := wireOwn([]string{"vm0", "vm1"}, []backend.Card{good, x.second}); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "vm1") {
			t.Errorf("%+v: %v", x.second, err)
		}
	}
	if _, err := wireOwn([]string{"vm0", "vm1"}, []backend.Card{good}); err == nil {
		t.Error("one card for two VMs")
	}
	// Addresses that come when the VMs run are looked at then.
	w, err := wireOwn([]string{"vm0", "vm1"}, []backend.Card{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02"}})
	if err != nil || !w.late || w.subnet(1) != "" || w.ip(1).IsValid() {
		t.Fatalf("%v, %+v", err, w)
	}
	if err := w.address(0, good.Address); err != nil {
		t.Error(err)
	}
	for _, x := range []struct{ address, want string }{{"192.0.2.1/16", "another VM's"}, {"2001:db8::1/64", "is no IPv4 address"}} {
		if err := w.address(1, at(x.address)); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "vm1") {
			t.Errorf("%s: %v", x.address, err)
		}
	}
	if err := w.address(1, at("192.0.2.2/24")); err != nil || w.subnet(1) != "192.0.2.0/24" || w.config[1][0].Address != at("192.0.2.2/24") {
		t.Errorf("%v, %+v", err, w)
	}
}

// VMs elsewhere are planned on the back end's machines.
func TestRemote(t *testing.T) {
	l := newLab(t)
	l.o.Hosts = "../../test/topology/igb-sriov.tar.gz"
	c := l.must(2)
	hosts, err := c.driver.(backend.Locator).Hosts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Record().Plan.VMs[0]; v.Host != hosts[0].Name {
		t.Errorf("planned on %q, want %q", v.Host, hosts[0].Name)
	}
}

// ownerVar makes the test's program the owner of a cluster, see TestOwnerKilled.
const ownerVar = "NEARMETAL_TEST_OWNER"

// TestOwner is the owner that the tests kill: it starts a cluster, says so, and waits.
func TestOwner(t *testing.T) {
	text := os.Getenv(ownerVar)
	if text == "" {
		t.Skip("for other tests")
	}
	var s spec.Cluster
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	_, err := Up(context.Background(), Options{Spec: &s})
	if err != nil {
		t.Fatal(err)
	}
	os.NewFile(3, "ready").Close()
	select {}
}

// owned starts an owner of n VMs in a process of its own, and returns it with its cluster's record.
func (l *lab) owned(n int) (*exec.Cmd, Record) {
	l.t.Helper()
	text, err := json.Marshal(l.spec(n))
	if err != nil {
		l.t.Fatal(err)
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOwner$")
	cmd.Env = append(os.Environ(), ownerVar+"="+string(text))
	cmd.ExtraFiles = []*os.File{theirs}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	theirs.Close()
	ready.Read(make([]byte, 1)) // the end of the file: it is ready, or gone
	r, err := Find("life")
	if err != nil {
		cmd.Wait()
		l.t.Fatalf("%v\n%s", err, said.String())
	}
	return cmd, *r
}

func killed(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// The owner is killed, and its VMs die with it: the next sweep removes what they were.
func TestOwnerKilled(t *testing.T) {
	l := newLab(t)
	cmd, r := l.owned(2)
	killed(cmd)
	gone(t, pids(r))
	lines, err := Sweep()
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "fake VM vm0") || !strings.Contains(lines[0], "fake VM vm1") {
		t.Errorf("%q, %v", lines, err)
	}
}

// The owner is killed, and a VM runs on: its CPUs stay taken until the journal has led to it and it
// is ended.
func TestOwnerKilledVMsSurvive(t *testing.T) {
	l := newLab(t)
	l.o.Survives = true
	cmd, r := l.owned(2)
	hung := r.VMs[1].PID
	stop(t, hung) // its agent cannot power it off
	killed(cmd)
	gone(t, []int{r.VMs[0].PID}) // this one's did
	if len(l.made()) != 2 {
		t.Errorf("the hypervisor has %q", l.made())
	}

	// While the hypervisor does not answer, the sweep says what it could not end, and keeps the journal.
	deny := filepath.Join(l.o.Dir, fake.Deny)
	if err := os.WriteFile(deny, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, err := Sweep(); err == nil || !strings.Contains(err.Error(), "cannot undo fake VM vm1: the hypervisor does not answer") || len(lines) != 0 {
		t.Errorf("%q, %v", lines, err)
	}
	list, err := List()
	if err != nil || len(list) != 1 || list[0].State != Dead || !list[0].mayRun() {
		t.Fatalf("%+v, %v", list, err)
	}
	if s := processState(t, hung); s != "T" {
		t.Errorf("the VM that runs on is in state %s", s)
	}
	if _, err := l.up(l.spec(1), Options{}); err == nil || !strings.Contains(err.Error(), "whose owner is gone") {
		t.Errorf("a cluster of the same name: %v", err)
	}
	if n := held(t); n != 2 {
		t.Errorf("%d VMs are held, want 2", n)
	}

	os.Remove(deny)
	lines, err := Sweep()
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "fake VM vm1") {
		t.Errorf("%q, %v", lines, err)
	}
	gone(t, []int{hung})
	l.empty()
	if n := held(t); n != 0 {
		t.Errorf("%d VMs are held after the sweep", n)
	}
}

// held counts the VMs that a new cluster has to leave room for.
func held(t *testing.T) int {
	t.Helper()
	ledger, err := Ledger()
	if err != nil {
		t.Fatal(err)
	}
	return len(ledger.Held)
}

// A down whose VMs cannot be ended says so, and keeps the journal for the next sweep.
func TestDownFails(t *testing.T) {
	l := newLab(t)
	l.o.Survives = true
	c, err := l.up(l.spec(1), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pid := c.Record().VMs[0].PID
	stop(t, pid)
	deny := filepath.Join(l.o.Dir, fake.Deny)
	os.WriteFile(deny, nil, 0o600)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Down(ctx); err == nil || !strings.Contains(err.Error(), "fake VM vm0: the hypervisor does not answer") {
		t.Errorf("%v", err)
	}
	os.Remove(deny)
	if lines, err := Sweep(); err != nil || len(lines) != 1 {
		t.Errorf("%q, %v", lines, err)
	}
	gone(t, []int{pid})
}

// A Ref leads to what it was written for only: a number that another process has by now is not
// touched, and neither is a file outside of the driver's.
func TestForgedRef(t *testing.T) {
	l := newLab(t)
	d, err := backend.Open(l.o.Name())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"../../etc/passwd": "is no VM", "0123456789abcdef": backend.ErrGone.Error()} {
		_, err := d.Attach(context.Background(), backend.Ref{Driver: l.o.Name(), ID: map[string]string{"id": id}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
