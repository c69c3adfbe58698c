package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/text"
)

// hub watches tasks and VMs of one session by one property collector. Its filter is over a list view: what is to be watched is
// put into that list, many at a time, and vCenter reports what changes. Nothing is asked twice, however many VMs there are.
type hub struct {
	s      *Session
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	watched map[types.ManagedObjectReference][]*watcher
	add     []types.ManagedObjectReference // that the list does not have yet
	remove  []types.ManagedObjectReference // that it still has
	kick    chan struct{}
	broken  error // vCenter does not answer
}

// watcher hears of an object. A task may have several: two undos of a sweep may wait for the same clone.
type watcher struct{ hear func(types.ObjectUpdate) }

// watchedProperties are what is reported of each type.
var watchedProperties = []types.PropertySpec{
	{Type: "Task", PathSet: []string{"info"}},
	{Type: "VirtualMachine", PathSet: []string{"runtime.powerState", "guest.toolsRunningStatus", "guest.guestOperationsReady", "guest.ipAddress", "guest.net"}},
}

// Bounds of the hub.
const (
	hubWait   = 300 * time.Second // how long vCenter keeps a question that has no answer yet
	hubTries  = 6                 // failures one after the other, after which vCenter counts as gone
	hubPause  = 500 * time.Millisecond
	hubGone   = 15 * time.Second // between attempts at a vCenter that is gone
	batchMost = 500              // objects of one call
)

func newHub(s *Session) *hub {
	h := &hub{s: s, watched: map[types.ManagedObjectReference][]*watcher{}, kick: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.done.Add(1)
	go h.run()
	return h
}

// close ends the hub; watchers hear nothing more.
func (h *hub) close() {
	h.cancel()
	h.done.Wait()
}

// watch calls f with each update of an object; a Leave is its end. f must not block. The first update is its state now, unless listed:
// vCenter's list has the object already, and vCenter does not report again what it has reported.
func (h *hub) watch(ref types.ManagedObjectReference, f func(types.ObjectUpdate)) (w *watcher, listed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil && ref.Type == "Task" {
		return nil, false, h.broken
	}
	n := len(h.remove)
	h.remove = slices.DeleteFunc(h.remove, func(r types.ManagedObjectReference) bool { return r == ref })
	listed = len(h.remove) < n || len(h.watched[ref]) > 0
	w = &watcher{f}
	h.watched[ref] = append(h.watched[ref], w)
	if !listed {
		h.add = append(h.add, ref)
		h.wake()
	}
	return w, listed, nil
}

// unwatch ends one watch of an object; nil: all of them.
func (h *hub) unwatch(ref types.ManagedObjectReference, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watched[ref], func(x *watcher) bool { return w == nil || x == w })
	if len(left) > 0 {
		h.watched[ref] = left
		return
	}
	delete(h.watched, ref)
	h.remove = append(h.remove, ref)
	if len(h.remove) >= batchMost/4 { // it is in no hurry
		h.wake()
	}
}

func (h *hub) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// run keeps a collector: a new one where vCenter has lost the last, as after a session has expired.
func (h *hub) run() {
	defer h.done.Done()
	fails := 0
	for h.ctx.Err() == nil {
		select { // no collector without anything to watch
		case <-h.kick:
		case <-h.ctx.Done():
			return
		}
		h.wake()
		progress, err := h.collect()
		if h.ctx.Err() != nil {
			return
		}
		if fails++; progress {
			fails = 1
		}
		pause := hubPause
		if fails >= hubTries {
			h.fail(h.s.explain("watch tasks", err))
			pause = hubGone
		}
		select {
		case <-time.After(pause):
		case <-h.ctx.Done():
		}
		h.wake()
	}
}

// fail ends the watches of tasks: those who wait for them have others who wait. VMs go on without a vCenter, and so do their watches.
func (h *hub) fail(err error) {
	h.mu.Lock()
	h.broken = err
	var list []types.ManagedObjectReference
	for ref := range h.watched {
		if ref.Type == "Task" {
			list = append(list, ref)
		}
	}
	h.mu.Unlock()
	for _, ref := range list {
		h.tell(types.ObjectUpdate{Obj: ref, Kind: types.ObjectUpdateKindLeave})
	}
}

// works notes that vCenter answers.
func (h *hub) works() {
	h.mu.Lock()
	h.broken = nil
	h.mu.Unlock()
}

// err is why nothing can be watched now; nil: it can.
func (h *hub) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// collect makes a list view with all that is watched and a collector, and hands updates on until one of the two fails.
// progress says that it had an answer.
func (h *hub) collect() (progress bool, err error) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	list, err := view.NewManager(h.s.client.Client).CreateListView(ctx, nil)
	if err != nil {
		return false, err
	}
	pc, err := h.s.pc.Create(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), logoutBound)
		defer cancel()
		if h.ctx.Err() == nil { // else the session ends, and takes them along
			pc.Destroy(ctx)
			list.Destroy(ctx)
		}
	}()
	filter := types.CreateFilter{This: pc.Reference(), Spec: types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: list.Reference(), Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{SelectionSpec: types.SelectionSpec{Name: "watched"}, Type: "ListView", Path: "view"}}}},
		PropSet: watchedProperties}}
	if _, err := methods.CreateFilter(ctx, h.s.client, &filter); err != nil {
		return false, err
	}
	h.mu.Lock()
	h.add, h.remove = nil, nil
	for ref := range h.watched {
		h.add = append(h.add, ref)
	}
	h.mu.Unlock()
	h.wake()
	failed := make(chan error, 1)
	var sending sync.WaitGroup
	sending.Add(1)
	go func() {
		defer sending.Done()
		if err := h.send(ctx, list.Reference()); err != nil {
			failed <- err
			cancel()
		}
	}()
	err = h.receive(ctx, pc, &progress)
	if h.ctx.Err() != nil { // the question is still open there
		ending, end := context.WithTimeout(context.WithoutCancel(h.ctx), logoutBound)
		methods.CancelWaitForUpdates(ending, h.s.client, &types.CancelWaitForUpdates{This: pc.Reference()})
		end()
	}
	cancel()
	sending.Wait()
	select {
	case err = <-failed:
	default:
	}
	return progress, err
}

// send puts into the list what is to be watched, and takes out what is not.
func (h *hub) send(ctx context.Context, list types.ManagedObjectReference) error {
	for {
		select {
		case <-h.kick:
		case <-ctx.Done():
			return nil
		}
		for {
			h.mu.Lock()
			n, m := min(len(h.add), batchMost), min(len(h.remove), batchMost)
			req := types.ModifyListView{This: list, Add: h.add[:n:n], Remove: h.remove[:m:m]}
			h.add, h.remove = h.add[n:], h.remove[m:]
			h.mu.Unlock()
			if len(req.Add) == 0 && len(req.Remove) == 0 {
				break
			}
			res, err := methods.ModifyListView(ctx, h.s.client, &req)
			if err != nil {
				return err
			}
			for _, ref := range res.Returnval { // they are not there
				h.tell(types.ObjectUpdate{Obj: ref, Kind: types.ObjectUpdateKindLeave})
			}
		}
	}
}

// receive hands on what vCenter reports.
func (h *hub) receive(ctx context.Context, pc *property.Collector, progress *bool) error {
	version := ""
	for {
		wait := int32(hubWait / time.Second)
		res, err := methods.WaitForUpdatesEx(ctx, h.s.client, &types.WaitForUpdatesEx{This: pc.Reference(), Version: version,
			Options: &types.WaitOptions{MaxWaitSeconds: &wait}})
		if err != nil {
			return err
		}
		*progress = true
		h.works()
		if res.Returnval == nil {
			continue
		}
		version = res.Returnval.Version
		for _, f := range res.Returnval.FilterSet {
			for _, u := range f.ObjectSet {
				h.tell(u)
			}
		}
	}
}

func (h *hub) tell(u types.ObjectUpdate) {
	h.mu.Lock()
	list := slices.Clone(h.watched[u.Obj])
	h.mu.Unlock()
	for _, w := range list {
		w.hear(u)
	}
}

// errNoTask says that a task's end cannot be known any more.
var errNoTask = errors.New("the task is not there any more")

// follow watches a task: done has its end once, nil where that cannot be known. stop ends the watch.
func (h *hub) follow(ctx context.Context, task types.ManagedObjectReference) (done <-chan *types.TaskInfo, stop func(), err error) {
	c := make(chan *types.TaskInfo, 1)
	end := func(info *types.TaskInfo) {
		select {
		case c <- info:
		default:
		}
	}
	w, listed, err := h.watch(task, func(u types.ObjectUpdate) {
		for _, p := range u.ChangeSet {
			if info, ok := p.Val.(types.TaskInfo); ok && ended(&info) {
				end(&info)
				return
			}
		}
		if u.Kind == types.ObjectUpdateKindLeave {
			end(nil)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if listed {
		var t mo.Task
		switch found, err := h.s.readOne(ctx, task, []string{"info"}, &t); {
		case err == nil && !found:
			end(nil)
		case err == nil && ended(&t.Info):
			end(&t.Info)
		}
	}
	return c, func() { h.unwatch(task, w) }, nil
}

func ended(t *types.TaskInfo) bool {
	return t.State == types.TaskInfoStateSuccess || t.State == types.TaskInfoStateError
}

// finish waits for the end of a task. Its failure is an error in vCenter's words.
func (h *hub) finish(ctx context.Context, task types.ManagedObjectReference) (*types.TaskInfo, error) {
	done, stop, err := h.follow(ctx, task)
	if err != nil {
		return nil, err
	}
	defer stop()
	return h.await(ctx, done)
}

// await waits for what follow returned.
func (h *hub) await(ctx context.Context, done <-chan *types.TaskInfo) (*types.TaskInfo, error) {
	select {
	case info := <-done:
		if info == nil { // a task that vCenter has forgotten, or vCenter itself has gone
			if err := h.err(); err != nil {
				return nil, err
			}
			return nil, errNoTask
		}
		if info.State == types.TaskInfoStateError {
			return info, &taskError{info.Error}
		}
		return info, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// taskError is the failure of a task.
type taskError struct{ *types.LocalizedMethodFault }

func (e *taskError) Error() string { return text.OneLine(localised(e.LocalizedMethodFault)) }

// GetLocalizedMethodFault makes it a fault to look into.
func (e *taskError) GetLocalizedMethodFault() *types.LocalizedMethodFault {
	return e.LocalizedMethodFault
}

// Fault is the fault itself, for fault.As.
func (e *taskError) Fault() types.BaseMethodFault {
	if e.LocalizedMethodFault == nil {
		return nil
	}
	return e.LocalizedMethodFault.Fault
}

// do starts a task and waits for its end. what says what it does, of which VM and on which host; the task and vCenter's own words are
// added. started is called with the task; it may be nil. A task that ctx ends is cancelled, and its end awaited.
func (c *center) do(ctx context.Context, what string, start func(context.Context) (types.ManagedObjectReference, error), started func(types.ManagedObjectReference) error) (*types.TaskInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	// A call that ctx ends in the middle may have started a task that nobody knows: it is carried through.
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer cancel()
	task, err := start(calling)
	if err != nil {
		return nil, c.explain(what, err)
	}
	done, stop, err := c.hub.follow(calling, task)
	if err != nil {
		return nil, c.explain(what, err)
	}
	defer stop()
	if started != nil {
		err = started(task)
	}
	if err == nil {
		var info *types.TaskInfo
		info, err = c.hub.await(ctx, done)
		if info != nil || ctx.Err() == nil { // it has ended
			if err != nil {
				err = c.explain(fmt.Sprintf("%s (task %s)", what, task.Value), err)
			}
			return info, err
		}
	}
	// The caller undoes what the task did: it must have ended by then.
	ending, cancel2 := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel2()
	methods.CancelTask(ending, c.client, &types.CancelTask{This: task})
	info, _ := c.hub.await(ending, done)
	return info, err
}

// callBound bounds a single call that is not waited with.
const callBound = 2 * time.Minute

// readOne reads properties of an object; found is false where it is not there.
func (s *Session) readOne(ctx context.Context, ref types.ManagedObjectReference, props []string, dst any) (found bool, err error) {
	err = s.retrieve(ctx, ref, props, dst)
	if isGone(err) {
		return false, nil
	}
	return err == nil, err
}
