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

// hub watches tasks and VMs of one session by one property collector. Its filter covers a list view: watched objects
// are added to that list, many at a time, and vCenter reports changes. Nothing is queried twice, regardless of the
// number of VMs.
type hub struct {
	s      *Session
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	watched map[types.ManagedObjectReference][]*watcher
	add     []types.ManagedObjectReference // not in the list yet
	remove  []types.ManagedObjectReference // still in the list
	kick    chan struct{}
	broken  error // error while vCenter does not answer
}

// watcher receives the updates of an object. A task may have several: two undos of a sweep may wait for the same
// clone.
type watcher struct{ hear func(types.ObjectUpdate) }

// watchedProperties are the reported properties of each type.
var watchedProperties = []types.PropertySpec{
	{Type: "Task", PathSet: []string{"info"}},
	{Type: "VirtualMachine", PathSet: []string{"runtime.powerState", "guest.toolsRunningStatus", "guest.guestOperationsReady", "guest.ipAddress", "guest.net"}},
}

// Bounds of the hub.
const (
	hubWait   = 300 * time.Second // bound of vCenter's wait for a change
	hubTries  = 6                 // consecutive failures after which vCenter counts as gone
	hubPause  = 500 * time.Millisecond
	hubGone   = 15 * time.Second // between attempts to reach a vCenter that is gone
	batchMost = 500              // objects per call
)

func newHub(s *Session) *hub {
	h := &hub{s: s, watched: map[types.ManagedObjectReference][]*watcher{}, kick: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.done.Add(1)
	go h.run()
	return h
}

// close ends the hub; watchers receive no more updates.
func (h *hub) close() {
	h.cancel()
	h.done.Wait()
}

// watch calls f with each update of an object; a Leave is its end. f must not block. The first update is the current
// state, unless listed is set: vCenter's list then already has the object, and vCenter does not repeat its reports.
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

// unwatch ends one watch of an object; w nil: all of them.
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
	if len(h.remove) >= batchMost/4 { // removals are not urgent
		h.wake()
	}
}

func (h *hub) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// run keeps a collector, and makes a new one if vCenter has lost the last, as after a session has expired.
func (h *hub) run() {
	defer h.done.Done()
	fails := 0
	for h.ctx.Err() == nil {
		select { // no collector is needed without watched objects
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

// fail ends the watches of tasks, because callers wait for them. VMs keep running without a vCenter, and so do their
// watches.
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

// works records that vCenter answers.
func (h *hub) works() {
	h.mu.Lock()
	h.broken = nil
	h.mu.Unlock()
}

// err returns the reason why nothing can be watched now, or nil.
func (h *hub) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// collect makes a list view with all watched objects and a collector, and passes on updates until one of the two
// fails. progress reports that it had an answer.
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
		if h.ctx.Err() == nil { // otherwise the session ends, and they end with it
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
	if h.ctx.Err() != nil { // the call is still open there
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

// send adds newly watched objects to the list, and removes those no longer watched.
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
			for _, ref := range res.Returnval { // these objects do not exist
				h.tell(types.ObjectUpdate{Obj: ref, Kind: types.ObjectUpdateKindLeave})
			}
		}
	}
}

// receive passes on vCenter's reports.
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

// errNoTask reports that a task's result can no longer be known.
var errNoTask = errors.New("the task is not there any more")

// follow watches a task: done receives its result once, nil if that cannot be known. stop ends the watch.
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

// finish waits for the end of a task. If the task fails, the error has vCenter's words.
func (h *hub) finish(ctx context.Context, task types.ManagedObjectReference) (*types.TaskInfo, error) {
	done, stop, err := h.follow(ctx, task)
	if err != nil {
		return nil, err
	}
	defer stop()
	return h.await(ctx, done)
}

// await waits for the result of a watch started by follow.
func (h *hub) await(ctx context.Context, done <-chan *types.TaskInfo) (*types.TaskInfo, error) {
	select {
	case info := <-done:
		if info == nil { // vCenter has forgotten the task, or vCenter itself is gone
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

// GetLocalizedMethodFault makes the error a fault that can be inspected.
func (e *taskError) GetLocalizedMethodFault() *types.LocalizedMethodFault {
	return e.LocalizedMethodFault
}

// Fault returns the fault itself, for fault.As.
func (e *taskError) Fault() types.BaseMethodFault {
	if e.LocalizedMethodFault == nil {
		return nil
	}
	return e.LocalizedMethodFault.Fault
}

// do starts a task and waits for its end. what describes it for errors: the action, the VM and the host; the task and
// vCenter's own words are added. started is called with the task; it may be nil. If ctx ends, the task is cancelled,
// and its end awaited.
func (c *center) do(ctx context.Context, what string, start func(context.Context) (types.ManagedObjectReference, error), started func(types.ManagedObjectReference) error) (*types.TaskInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	// The call is completed even if ctx ends: it could otherwise have started a task that nobody knows.
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
		if info != nil || ctx.Err() == nil { // the task has ended
			if err != nil {
				err = c.explain(fmt.Sprintf("%s (task %s)", what, task.Value), err)
			}
			return info, err
		}
	}
	// The caller undoes the task's work, so the task must have ended by then.
	ending, cancel2 := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel2()
	methods.CancelTask(ending, c.client, &types.CancelTask{This: task})
	info, _ := c.hub.await(ending, done)
	return info, err
}

// callBound bounds a single call that does not wait.
const callBound = 2 * time.Minute

// readOne reads properties of an object; found is false if it does not exist.
func (s *Session) readOne(ctx context.Context, ref types.ManagedObjectReference, props []string, dst any) (found bool, err error) {
	err = s.retrieve(ctx, ref, props, dst)
	if isGone(err) {
		return false, nil
	}
	return err == nil, err
}
