package vcsim

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Tasks makes every task first call f with its name ("CloneVm", "ReconfigVm"): f returns the task's failure, and the
// task lasts at least as long as f. nil: tasks run normally.
func (s *Server) Tasks(f func(name string) types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.task = f
}

// tasks inserts that call before each task, and tracks which VMs are being cloned.
type tasks struct {
	s    *Server
	self types.ManagedObjectReference
}

func (t *tasks) Reference() types.ManagedObjectReference { return t.self }

func (t *tasks) PutObject(o mo.Reference) {
	task, ok := o.(*simulator.Task)
	if !ok {
		t.s.appeared(o.Reference())
		return
	}
	if task.Info.Name == "CloneVm" {
		t.s.clones(task.Self)
	}
	run := task.Execute
	task.Execute = func(x *simulator.Task) (types.AnyType, types.BaseMethodFault) {
		defer t.s.cloned(x.Self)
		t.s.mu.Lock()
		f := t.s.task
		t.s.mu.Unlock()
		if f != nil {
			if fault := f(x.Info.Name); fault != nil {
				return nil, fault
			}
		}
		return run(x)
	}
}

func (*tasks) UpdateObject(*simulator.Context, mo.Reference, []types.PropertyChange) {}
func (*tasks) RemoveObject(*simulator.Context, types.ManagedObjectReference)         {}

// clones records that a task clones.
func (s *Server) clones(task types.ManagedObjectReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cloning == nil {
		s.cloning = map[types.ManagedObjectReference][]types.ManagedObjectReference{}
	}
	s.cloning[task] = nil
}

// appeared records a new object: a VM belongs to a running clone.
func (s *Server) appeared(o types.ManagedObjectReference) {
	if o.Type != "VirtualMachine" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for task := range s.cloning {
		s.cloning[task] = append(s.cloning[task], o)
	}
}

// cloned records that a task no longer clones.
func (s *Server) cloned(task types.ManagedObjectReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cloning, task)
}

var this = regexp.MustCompile(`<_this type="(VirtualMachine|Task)">([^<]+)<`)

// busy returns vCenter's answer to the removal of a VM that may still be a clone's, and to the end of such a task.
// The simulator itself would remove that VM and crash, and a task that it cancels reports its end but continues.
func (s *Server) busy(method string, request []byte) (f Failure, yes bool) {
	m := this.FindSubmatch(request)
	if m == nil || method != "Destroy_Task" && method != "CancelTask" {
		return f, false
	}
	ref := types.ManagedObjectReference{Type: string(m[1]), Value: string(m[2])}
	s.mu.Lock()
	defer s.mu.Unlock()
	for task, vms := range s.cloning {
		if method == "CancelTask" && ref == task {
			return Failure{Text: "The operation is not supported on the object.", Fault: `<NotSupportedFault xmlns="urn:vim25" xsi:type="NotSupported"></NotSupportedFault>`}, true
		}
		if method == "Destroy_Task" && slices.Contains(vms, ref) {
			return Failure{Text: "The operation is not allowed: another task is already in progress.", Fault: fmt.Sprintf(
				`<TaskInProgressFault xmlns="urn:vim25" xsi:type="TaskInProgress"><task type="Task">%s</task></TaskInProgressFault>`, task.Value)}, true
		}
	}
	return f, false
}
