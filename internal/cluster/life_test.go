package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/fake"
	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/spec"
	"nearmetal/internal/verify"
	"nearmetal/test/clustertest"
)

// These tests start and end clusters whose VMs are processes (backend/fake), with real agents, channel, control
// socket, record and journal.

// lab is a clustertest.Lab in which whole clusters start.
type lab struct {
	*clustertest.Lab
	t *testing.T
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{clustertest.New(t), t}
}

// up starts a cluster and has the test end it on cleanup.
func (l *lab) up(s *spec.Cluster, o Start, ev ...Events) (*Cluster, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Patience)
	defer cancel()
	s.Backend = l.O.Name()
	o.Spec = s
	c, err := Up(ctx, o, append(ev, Events{})[0])
	if err == nil {
		l.t.Cleanup(func() { l.down(c) })
	}
	return c, err
}

// must is up of n VMs, and fails the test on an error.
func (l *lab) must(n int) *Cluster {
	l.t.Helper()
	c, err := l.up(l.Spec(n), Start{})
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

// runTrue runs true in a VM.
func runTrue(c *client.Client, vm string) error {
	p, err := c.VM(vm).Start(guest.Exec{Args: []string{"true"}, NoStdin: true})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Wait()
	return err
}

func TestUpDown(t *testing.T) {
	l := newLab(t)
	c := l.must(3)
	r := c.Record()
	if r.State != state.Ready || len(r.VMs) != 3 || r.VMs[2].State != state.Ready || r.VMs[2].IP != "10.77.0.3" || !r.VMs[2].Uplink || r.Survives {
		t.Errorf("%+v", r)
	}
	if len(l.Made()) != 3 {
		t.Errorf("made: %q", l.Made())
	}
	cl, err := client.Connect(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	// The backend has no Inspector, which verify reports. The guests' answers come from this host.
	rep, err := cl.Verify(context.Background())
	if err != nil || !rep.Guest || len(rep.Rows) < 6 || rep.Rows[0].Status != verify.Note || !strings.Contains(rep.Rows[0].Found, "no way to") {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, v := range r.VMs {
		if err := runTrue(cl, v.Name); err != nil {
			t.Error(err)
		}
	}
	asked := make(chan error, 1)
	go func() { asked <- cl.Down(context.Background()) }()
	clustertest.Await(t, "the wish for the end", c.Asked())
	l.down(c)
	if err := clustertest.Await(t, "the client's answer", asked); err != nil {
		t.Error(err)
	}
	clustertest.Await(t, "the end of the last VM", c.Died())
	clustertest.Gone(t, clustertest.PIDs(r))
}

// Checks that a dead VM is reported by its name and that the others keep running.
func TestVMDies(t *testing.T) {
	l := newLab(t)
	c := l.must(2)
	unix.Kill(-c.Record().VMs[1].PID, unix.SIGKILL)
	err := clustertest.Await(t, "the loss", c.Lost())
	var lost *state.VMError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "vm1 ended: its process ended: signal: killed") {
		t.Errorf("%v", err)
	}
	if len(lost.Console) == 0 || lost.Console[len(lost.Console)-1] != "fake VM vm1 is up" {
		t.Errorf("console %q", lost.Console)
	}
	r := c.Record()
	if r.VMs[0].State != state.Ready || r.VMs[1].State != state.Dead || r.VMs[1].PID != 0 {
		t.Errorf("%+v", r.VMs)
	}
	cl, err := client.Connect(context.Background(), "life")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := runTrue(cl, "vm0"); err != nil {
		t.Errorf("the other: %v", err)
	}
}

// Checks that a VM whose agent hangs is ended when its time to power off has passed.
func TestDownHung(t *testing.T) {
	l := newLab(t)
	c := l.must(2)
	list := clustertest.PIDs(c.Record())
	clustertest.Stop(t, list[0])
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := c.Down(ctx); err != nil {
		t.Error(err)
	}
	clustertest.Gone(t, list)
}

// Checks that an agent which never connects ends the start after its timeout, with nothing left.
func TestAgentHangs(t *testing.T) {
	l := newLab(t)
	l.O.Mute = "vm1"
	_, err := l.up(l.Spec(2), Start{BootTimeout: 500 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "not ready after 500ms (--boot-timeout)") {
		t.Errorf("%v", err)
	}
	l.Empty()
}

// Checks that a VM which dies before its agent connects ends the start at once, with an error that names the VM.
func TestVMDiesBooting(t *testing.T) {
	l := newLab(t)
	l.O.Mute = "vm1"
	_, err := l.up(l.Spec(2), Start{BootTimeout: clustertest.Patience}, Events{Stage: func(name string, done, total int) {
		if name == start.StageBoot && done == 1 { // vm0 is ready, so vm1 exists
			r, err := state.Find("life")
			if err != nil {
				t.Error(err)
				return
			}
			unix.Kill(-r.VMs[1].PID, unix.SIGKILL)
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "vm1 ended while the cluster booted") {
		t.Errorf("%v", err)
	}
	l.Empty()
}

// Checks that a failed start leaves nothing of the failed VM or of the others.
func TestStartFails(t *testing.T) {
	l := newLab(t)
	l.O.Refuse = "vm1"
	_, err := l.up(l.Spec(3), Start{})
	if err == nil || err.Error() != "VM vm1: it is to be refused" {
		t.Errorf("%v", err)
	}
	l.Empty()
}

// Checks that a cancelled start returns the caller's cause and leaves nothing.
func TestUpInterrupted(t *testing.T) {
	l := newLab(t)
	l.O.Mute = "vm0"
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("Ctrl-C")
	_, err := Up(ctx, Start{Spec: l.Spec(1)}, Events{Stage: func(name string, _, _ int) {
		if name == start.StageBoot {
			cancel(stop)
		}
	}})
	if !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	l.Empty()
}

// Checks that a VM stops only when all its holders ask for it, and resumes with the first that does not.
func TestPause(t *testing.T) {
	l := newLab(t)
	c := l.must(1)
	pid := c.Record().VMs[0].PID
	state := func() string { return clustertest.ProcessState(t, pid) }
	if err := c.Pause(); err != nil || state() != "T" {
		t.Errorf("by the owner alone: %v, state %s", err, state())
	}
	if err := c.Resume(); err != nil || state() == "T" {
		t.Errorf("and on again: %v, state %s", err, state())
	}
	cl, err := client.Connect(context.Background(), "life")
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
	pause := func(p *client.Pauser, stop bool, want string) {
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
	// The owner cannot pause a VM that a client keeps running.
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
	// The VM stops when the last holder that kept it running ends.
	two.Close()
	for until := time.Now().Add(clustertest.Patience); state() != "T" && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if got := state(); got != "T" {
		t.Errorf("the last holder that kept it running has ended: state %s", got)
	}
	pause(one, false, "S")
}

// Checks that a VM that was restarted while a client held it stopped runs, and can be stopped.
func TestRestartStopped(t *testing.T) {
	l := newLab(t)
	c, err := l.up(l.Spec(1), Start{Kept: true})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Connect(context.Background(), "life")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	one, err := cl.Pauser("vm0")
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Pause(true); err != nil {
		t.Fatal(err)
	}
	if err := cl.Restart(context.Background(), "vm0"); err != nil {
		t.Fatal(err)
	}
	state := func() string { return clustertest.ProcessState(t, c.Record().VMs[0].PID) }
	if got := state(); got == "T" {
		t.Error("the restarted VM is stopped")
	}
	if err := c.Pause(); err != nil || state() != "T" {
		t.Errorf("%v, state %s", err, state())
	}
	if err := c.Resume(); err != nil {
		t.Error(err)
	}
}

// Checks that a capability which the cluster file requires and the backend lacks is one error, before anything is
// made.
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
		l.O.Lacks = x.lacks
		s := l.Spec(2)
		if x.change != nil {
			x.change(s)
		}
		_, err := l.up(s, Start{})
		var lacks backend.Lacks
		if !errors.As(err, &lacks) || !strings.HasPrefix(err.Error(), "backend fake cannot") || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v\nwant %s", err, x.want)
		}
		l.Empty()
	}
}

// Checks that a backend with disks of its own needs no files of this host: root: backend starts VMs that get none.
// Where either is missing, the error names the root that is available.
func TestOwnDisk(t *testing.T) {
	l := newLab(t)
	l.O.OwnDisk, l.O.Lacks = true, []backend.Cap{backend.CapHostFiles}
	s := l.Spec(2)
	s.Root = spec.RootBackend
	c, err := l.up(s, Start{})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Record(); r.Backend != l.O.Name() || r.Running() != 2 {
		t.Errorf("%+v", r)
	}
	l.down(c)
	_, err = l.up(l.Spec(2), Start{})
	if err == nil || !strings.Contains(err.Error(), "which root: host needs: write root: backend, and no shares") {
		t.Errorf("%v", err)
	}
	l.O.OwnDisk, l.O.Lacks = false, nil
	s = l.Spec(2)
	s.Root = spec.RootBackend
	_, err = l.up(s, Start{})
	if err == nil || err.Error() != "backend fake cannot start VMs from a disk of its own, which root: backend needs" {
		t.Errorf("%v", err)
	}
}

// Checks that optional features of the cluster file are left out if the backend lacks them.
func TestLeftOut(t *testing.T) {
	l := newLab(t)
	l.O.Lacks = []backend.Cap{backend.CapUserNetwork, backend.CapPins, backend.CapVFIO}
	c := l.must(2)
	r := c.Record()
	if r.VMs[0].Uplink || r.Plan.Region != nil || len(r.Plan.VMs[0].Pins) != 0 {
		t.Errorf("%+v", r)
	}
}

// Checks that a backend's own network joins the VMs and is removed with them.
func TestOwnNetwork(t *testing.T) {
	l := newLab(t)
	l.O.Network = true
	l.O.Lacks = []backend.Cap{backend.CapUserNetwork}
	c := l.must(3)
	if r := c.Record(); r.VMs[2].IP != "192.0.2.12" || r.VMs[2].Subnet != "192.0.2.0/24" || r.VMs[2].Uplink {
		t.Errorf("%+v", r.VMs[2])
	}
	if len(l.Made()) != 4 {
		t.Errorf("made: %q, want three VMs and a network", l.Made())
	}
}

// Checks that VMs on other machines are planned with the backend's topology.
func TestRemote(t *testing.T) {
	l := newLab(t)
	l.O.Hosts = "../../test/topology/igb-sriov.tar.gz"
	c := l.must(2)
	d, err := backend.Open(l.O.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	hosts, err := d.(backend.Locator).Hosts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Record().Plan.VMs[0]; v.Host != hosts[0].Name {
		t.Errorf("planned on %q, want %q", v.Host, hosts[0].Name)
	}
}

// ownerVar makes the test's program the owner of a cluster, see TestOwnerKilled.
const ownerVar = "NEARMETAL_TEST_OWNER"

// TestOwner is the owner that the tests kill: it starts a cluster, reports that it is ready, and waits.
func TestOwner(t *testing.T) {
	text := os.Getenv(ownerVar)
	if text == "" {
		t.Skip("for other tests")
	}
	var s spec.Cluster
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	_, err := Up(context.Background(), Start{Spec: &s}, Events{})
	if err != nil {
		t.Fatal(err)
	}
	os.NewFile(3, "ready").Close()
	select {}
}

// owned starts an owner of n VMs in a process of its own, and returns it with its cluster's record.
func (l *lab) owned(n int) (*exec.Cmd, state.Record) {
	l.t.Helper()
	text, err := json.Marshal(l.Spec(n))
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
	ready.Read(make([]byte, 1)) // returns at the end of the file: the owner is ready, or has exited
	r, err := state.Find("life")
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

// Checks that the VMs die with their killed owner, and that the next sweep removes what they left.
func TestOwnerKilled(t *testing.T) {
	l := newLab(t)
	cmd, r := l.owned(2)
	killed(cmd)
	clustertest.Gone(t, clustertest.PIDs(r))
	lines, err := state.Sweep()
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "fake VM vm0") || !strings.Contains(lines[0], "fake VM vm1") {
		t.Errorf("%q, %v", lines, err)
	}
}

// Checks that a VM which survives its killed owner keeps its CPUs until the sweep has found it through the journal
// and ended it.
func TestOwnerKilledVMsSurvive(t *testing.T) {
	l := newLab(t)
	l.O.Survives = true
	cmd, r := l.owned(2)
	hung := r.VMs[1].PID
	clustertest.Stop(t, hung) // its agent cannot power it off
	killed(cmd)
	clustertest.Gone(t, []int{r.VMs[0].PID}) // the agent of this VM did power it off
	if len(l.Made()) != 2 {
		t.Errorf("the hypervisor has %q", l.Made())
	}

	// While the hypervisor does not answer, the sweep reports what it could not end, and keeps the journal.
	deny := filepath.Join(l.O.Dir, fake.Deny)
	if err := os.WriteFile(deny, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, err := state.Sweep(); err == nil || !strings.Contains(err.Error(), "cannot undo fake VM vm1: the hypervisor does not answer") || len(lines) != 0 {
		t.Errorf("%q, %v", lines, err)
	}
	list, err := state.List()
	if err != nil || len(list) != 1 || list[0].State != state.Dead || !list[0].MayRun() {
		t.Fatalf("%+v, %v", list, err)
	}
	if s := clustertest.ProcessState(t, hung); s != "T" {
		t.Errorf("the VM that runs on is in state %s", s)
	}
	if _, err := l.up(l.Spec(1), Start{}); err == nil || !strings.Contains(err.Error(), "whose owner is gone") {
		t.Errorf("a cluster of the same name: %v", err)
	}
	if n := held(t); n != 2 {
		t.Errorf("%d VMs are held, want 2", n)
	}

	os.Remove(deny)
	lines, err := state.Sweep()
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "fake VM vm1") {
		t.Errorf("%q, %v", lines, err)
	}
	clustertest.Gone(t, []int{hung})
	l.Empty()
	if n := held(t); n != 0 {
		t.Errorf("%d VMs are held after the sweep", n)
	}
}

// held counts the VMs that a new cluster has to leave room for.
func held(t *testing.T) int {
	t.Helper()
	ledger, err := state.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	return len(ledger.Held)
}

// Checks that Down reports VMs that cannot be ended, and keeps the journal for the next sweep.
func TestDownFails(t *testing.T) {
	l := newLab(t)
	l.O.Survives = true
	c, err := l.up(l.Spec(1), Start{})
	if err != nil {
		t.Fatal(err)
	}
	pid := c.Record().VMs[0].PID
	clustertest.Stop(t, pid)
	deny := filepath.Join(l.O.Dir, fake.Deny)
	os.WriteFile(deny, nil, 0o600)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Down(ctx); err == nil || !strings.Contains(err.Error(), "fake VM vm0: the hypervisor does not answer") {
		t.Errorf("%v", err)
	}
	os.Remove(deny)
	if lines, err := state.Sweep(); err != nil || len(lines) != 1 {
		t.Errorf("%q, %v", lines, err)
	}
	clustertest.Gone(t, []int{pid})
}

// Checks that a Ref affects only what it was recorded for: neither a process that has the same number by now, nor a
// file outside of the driver's directory.
func TestForgedRef(t *testing.T) {
	l := newLab(t)
	d, err := backend.Open(l.O.Name())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"../../etc/passwd": "is not a VM", "0123456789abcdef": backend.ErrGone.Error()} {
		_, err := d.Attach(context.Background(), backend.Ref{Driver: l.O.Name(), ID: map[string]string{"id": id}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
