package vsphere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// madeFile is a cluster with a port group of its own.
var madeFile = strings.Replace(fileText, "portGroup: DC0_DVPG0", "switch: DVS0", 1)

// names returns the names of all VMs and port groups.
func names() []string {
	var list []string
	for _, kind := range []string{"VirtualMachine", "DistributedVirtualPortgroup"} {
		for _, e := range simulator.Map.All(kind) {
			list = append(list, e.Entity().Name)
		}
	}
	slices.Sort(list)
	return list
}

// same fails if vCenter is not in its earlier state.
func same(t *testing.T, what string, before []string) {
	t.Helper()
	if got := names(); !slices.Equal(got, before) {
		t.Fatalf("%s: left: %v\nwere: %v", what, got, before)
	}
}

// TestTaskFails: a task that fails stops the start. The error is one line with the VM, the host, the task and
// vCenter's own words, and nothing of the VM is left, without an undo.
func TestTaskFails(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	for _, task := range []string{"CloneVm", "ReconfigVm", "CustomizeVm", "PowerOn"} {
		if testing.Short() && task != "ReconfigVm" {
			continue
		}
		l, err := begin(t, fileText)
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		s.Tasks(func(name string) types.BaseMethodFault {
			if strings.HasPrefix(strings.ToLower(name), strings.ToLower(task)) && n.Add(1) == 1 {
				return &types.NoDiskSpace{FileFault: types.FileFault{File: "x"}, Datastore: "ds1"}
			}
			return nil
		})
		l.p.VMs = l.p.VMs[:1]
		err = l.start(context.Background())
		s.Tasks(nil)
		if err == nil || n.Load() == 0 {
			t.Fatalf("%s: nothing failed", task)
		}
		for _, want := range []string{"mpi0", "host DC0_C0_H", "task task-", "NoDiskSpace"} {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v\nwant %s", task, err, want)
			}
		}
		same(t, task, before)
		l.j.undo(t) // it finds nothing, and removes nothing of others
		same(t, task, before)
	}
}

// TestCallsFail: whichever call fails, and however, the start fails or succeeds, and the undo restores vCenter's
// state. With NEARMETAL_ALL_CALLS the first call of every method fails, in a minute; otherwise the clone's.
func TestCallsFail(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	s.Fail(nil)
	whole := func() error {
		l, err := begin(t, madeFile)
		if err == nil {
			l.p.VMs = l.p.VMs[:1]
			err = l.start(context.Background())
		}
		s.Fail(nil)
		l.j.undo(t)
		l.d.Close()
		return err
	}
	l, err := begin(t, madeFile)
	if err != nil {
		t.Fatal(err)
	}
	l.p.VMs = l.p.VMs[:1]
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	calls := s.Calls()
	l.j.undo(t)
	l.d.Close()
	same(t, "without a failure", before)
	all := os.Getenv("NEARMETAL_ALL_CALLS") != ""
	var chosen []string
	for n, m := range calls {
		if slices.Index(calls, m) == n && (m == "CloneVM_Task" || all) {
			chosen = append(chosen, m)
		}
	}
	for _, m := range chosen {
		for _, f := range []vcsim.Failure{
			{Fault: `<SystemErrorFault xsi:type="SystemError"><reason>the disk is full</reason></SystemErrorFault>`, Text: "A general system error occurred: the disk is full"},
			{Drop: true}, {Drop: true, After: true},
			{Fault: `<NotAuthenticatedFault xsi:type="NotAuthenticated"><object type="Folder">group-d1</object><privilegeId>System.View</privilegeId></NotAuthenticatedFault>`, Text: "The session is not authenticated."},
		} {
			expired := strings.Contains(f.Text, "session")
			var n atomic.Int32
			s.Fail(func(_ int, method string) vcsim.Failure {
				if method == m && n.Add(1) == 1 {
					return f
				}
				return vcsim.Failure{}
			})
			err := whole()
			same(t, m, before)
			if err == nil && !expired && strings.HasSuffix(m, "_Task") {
				t.Errorf("%s: a failed call is no error", m)
			}
			// No session exists before or after these.
			outside := m == "RetrieveServiceContent" || m == "Login" || m == "Logout"
			if err != nil && (strings.Contains(err.Error(), "\n") || expired && !outside) {
				t.Errorf("%s: %v", m, err)
			}
		}
	}
}

// TestGone: a VM that another user removes is reported as ended, and that is not an error.
func TestGone(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	i := l.vms[0].(*instance)
	vm := object.NewVirtualMachine(l.d.c.client.Client, i.vm)
	for _, f := range []func(context.Context) (*object.Task, error){vm.PowerOff, vm.Destroy} {
		task, err := f(context.Background())
		if err == nil {
			err = task.Wait(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-i.Done()
	for _, v := range l.vms {
		if err := v.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	}
	l.j.undo(t)
	same(t, "gone", before)
}

// TestRemovedWhileBusy: vCenter refuses to remove a VM during another task. The removal waits for that task's end and
// is then repeated.
func TestRemovedWhileBusy(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	tasks := simulator.Map.Get(*l.d.c.client.ServiceContent.TaskManager).(*simulator.TaskManager)
	task := tasks.RecentTask[0].Value // has ended
	var refused atomic.Int32
	s.Fail(func(_ int, method string) vcsim.Failure {
		if method == "Destroy_Task" && refused.Add(1) <= 2 {
			return vcsim.Failure{Text: "Another task is already in progress.",
				Fault: `<TaskInProgressFault xmlns="urn:vim25" xsi:type="TaskInProgress"><task type="Task">` + task + `</task></TaskInProgressFault>`}
		}
		return vcsim.Failure{}
	})
	for _, v := range l.vms {
		if err := v.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if refused.Load() < 3 {
		t.Error("nothing was removed")
	}
	l.j.undo(t)
	same(t, "busy", before)
}

// TestCloneAnswerLost: a clone's answer is lost while the clone runs, and another task leaves vCenter while the tasks
// are read. The clone's end is awaited, and its VM is removed; nothing is destroyed earlier.
func TestCloneAnswerLost(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	l.p.VMs = l.p.VMs[:1]
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	defer release()
	s.Tasks(func(name string) types.BaseMethodFault {
		if strings.HasPrefix(name, "CloneV") {
			<-slow
		}
		return nil
	})
	var lost, gone, listed, early bool
	s.Fail(func(_ int, m string) (f vcsim.Failure) { // one call at a time, because there is one VM
		switch {
		case m == "CloneVM_Task":
			lost = true
			return vcsim.Failure{Drop: true, After: true}
		case strings.HasPrefix(m, "RetrieveProperties") && lost && !gone && strings.Contains(s.Last(m), ">task-"):
			gone = true
			return vcsim.Failure{Text: "The object has already been deleted or has not been completely created",
				Fault: `<ManagedObjectNotFoundFault xsi:type="ManagedObjectNotFound"><obj type="Task">task-1</obj></ManagedObjectNotFoundFault>`}
		case m == "ModifyListView" && gone:
			listed = true
		case m == "WaitForUpdatesEx" && listed:
			release()
		case m == "Destroy_Task" && !listed:
			early = true
		}
		return f
	})
	if err := l.start(context.Background()); err == nil || strings.Contains(err.Error(), "left") {
		t.Error(err)
	}
	if !gone || !listed || early {
		t.Errorf("a task left: %v, the clone was awaited: %v, destroyed before: %v", gone, listed, early)
	}
	same(t, "lost", before)
}

// TestPortGroupAnswerLost: the answer to the call that makes the port group is lost while vCenter makes it. The undo
// waits for its end, and removes the port group.
func TestPortGroupAnswerLost(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	defer release()
	s.Tasks(func(name string) types.BaseMethodFault {
		if strings.HasPrefix(name, "AddDVPortgroup") {
			<-slow
		}
		return nil
	})
	var lost, watched, early bool
	after := 0 // number of calls while the task runs
	s.Fail(func(_ int, m string) (f vcsim.Failure) {
		switch {
		case m == "AddDVPortgroup_Task":
			lost = true
			return vcsim.Failure{Drop: true, After: true}
		case !lost || watched || early:
		case m == "ModifyListView": // the task is watched
			watched = true
			release()
		case strings.HasPrefix(m, "RetrieveProperties") && strings.Contains(s.Last(m), "<pathSet>portgroup<"), after > 200:
			early = true // the simulator blocks reads of its switch before that
			release()
		}
		if lost {
			after++
		}
		return f
	})
	l, err := begin(t, madeFile)
	if err == nil || !lost {
		t.Fatal("the port group's answer was not lost")
	}
	l.j.undo(t)
	if !watched || early {
		t.Errorf("the task that makes the port group was awaited: %v; its switch was read before its end: %v", watched, early)
	}
	same(t, "lost", before)
}

// TestRemovedPoweredOn: a VM that is powered on between the two calls of its removal is removed.
func TestRemovedPoweredOn(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	l.p.VMs = l.p.VMs[:1]
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	vm := object.NewVirtualMachine(l.d.c.client.Client, l.vms[0].(*instance).vm)
	var asked int
	s.Fail(func(_ int, m string) (f vcsim.Failure) { // one call at a time
		if m != "Destroy_Task" {
			return f
		}
		if asked++; asked == 1 {
			task, err := vm.PowerOn(context.Background())
			if err == nil {
				err = task.Wait(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		}
		return f
	})
	if err := l.vms[0].Kill(context.Background()); err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	same(t, "powered on", before)
}

// TestInterrupted: after Ctrl-C during a long clone the start ends with its cause, and nothing is left.
func TestInterrupted(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	release := make(chan struct{})
	s.Tasks(func(name string) types.BaseMethodFault {
		if strings.HasPrefix(name, "CloneV") {
			cancel(cause)
			<-release
		}
		return nil
	})
	go func() { // by then the owner waits for the task's end
		<-ctx.Done()
		close(release)
	}()
	if err := l.start(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	s.Tasks(nil)
	same(t, "interrupted", before)
	l.j.undo(t)
}

// TestInterruptedFull: Ctrl-C while a host has the maximum of clones in progress. Their removals do not wait for each
// other's slots, and clones that still wait for a slot are not begun.
func TestInterruptedFull(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	before := names()
	l, err := begin(t, fmt.Sprintf(`
name: full
backend: vsphere
root: backend
vms: [{name: vm, count: %d, vcpus: 2, memory: 1GiB}]
vsphere: {template: %s, portGroup: DC0_DVPG0}
`, 2*provisioning, vcsim.Template))
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	var asked atomic.Int32
	s.Fail(func(_ int, method string) vcsim.Failure {
		if method == "CloneVM_Task" && asked.Add(1) == provisioning {
			cancel(cause)
		}
		return vcsim.Failure{}
	})
	s.Tasks(func(name string) types.BaseMethodFault {
		if strings.HasPrefix(name, "CloneV") {
			<-ctx.Done()
		}
		return nil
	})
	if err := l.start(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	s.Tasks(nil)
	same(t, "interrupted", before) // also without the journal
	l.j.undo(t)
	begun := map[string]bool{}
	for _, r := range l.j.refs {
		begun[r.ID["mark"]] = true
	}
	if asked.Load() != provisioning || len(begun) != provisioning {
		t.Errorf("%d VMs were begun, %d cloned, want %d", len(begun), asked.Load(), provisioning)
	}
}

// TestJournalFull: if the journal cannot be written, a start stops before anything is made.
func TestJournalFull(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	before := names()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	l.j.full = true
	if err := l.start(context.Background()); !errors.Is(err, errFull) {
		t.Error(err)
	}
	same(t, "journal", before)
}

// TestTwoAtOnce: two clusters with the same name that start at the same time do not affect each other.
func TestTwoAtOnce(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	before := names()
	a, err := begin(t, madeFile)
	if err != nil {
		t.Fatal(err)
	}
	b, err := begin(t, madeFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := side([]func() error{func() error { return a.start(ctx) }, func() error { return b.start(ctx) }}, 2); err != nil {
		t.Fatal(err)
	}
	a.j.undo(t)
	if n := len(names()); n != len(before)+3 {
		t.Errorf("%v", names())
	}
	b.j.undo(t)
	same(t, "two", before)
}

// TestRefusedBefore: faults that can be detected before anything is made are reported then, in one line.
func TestRefusedBefore(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := names()
	host := s.Hosts()[0]
	for _, x := range []struct{ text, want string }{
		{strings.Replace(fileText, vcsim.Template, "nothing", 1), "find template"},
		{strings.Replace(fileText, "template: "+vcsim.Template+", ", "", 1), "write vsphere: {template: NAME}"},
		{strings.Replace(fileText, "DC0_DVPG0", "nothing", 1), "find port group"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, linked: true", 1), "has no snapshot"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, switch: DVS0", 1), "write one of them"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "datastore: nothing", 1), "find datastore"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "pool: nothing", 1), "find resource pool"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "folder: nothing", 1), "find folder"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "hosts: [nothing]", 1), "find host"},
		{strings.Replace(fileText, "portGroup: DC0_DVPG0", "gateway: 10.1.2.3", 1), "not in network.subnet"},
		{strings.NewReplacer("count: 2", "count: 1", "devices: [{type: vf, pf: vmnic4}]", "devices: [{type: pci, address: '0000:3b:00.0'}]").Replace(fileText), "does not pass it through"},
		{strings.NewReplacer("count: 2", "count: 1", "devices: [{type: vf, pf: vmnic4}]", "devices: [{type: pci, address: '0000:3b:00.1'}]").Replace(fileText), "starts by"},
		{strings.Replace(fileText, "count: 2", "count: 9", 1), ""},
		{strings.NewReplacer("count: 2", "count: 1", "vmnic4", "vmnic0").Replace(fileText), "vmnic0"},
		{fileText + "region: {size: 64MiB}\n", "write region: 0"},
		{fileText + "network: none\n", "over their network"},
	} {
		_, err := begin(t, x.text)
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	host.Runtime.InMaintenanceMode = true
	_, err := begin(t, strings.Replace(fileText, "portGroup: DC0_DVPG0", "hosts: ["+host.Name+"]", 1))
	if err == nil || !strings.Contains(err.Error(), "maintenance mode") {
		t.Error(err)
	}
	for _, e := range simulator.Map.All("ResourcePool") {
		e.(*simulator.ResourcePool).Runtime.Memory.UnreservedForVm = 1 << 30
	}
	if _, err := begin(t, fileText); err == nil || !strings.Contains(err.Error(), "are not reserved yet") {
		t.Error(err)
	}
	same(t, "refused", before)
}
