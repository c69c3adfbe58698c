package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
)

// Attach finds the object of a Ref, and only if it has the Ref's mark.
func (d *driver) Attach(ctx context.Context, r backend.Ref) (backend.Instance, error) {
	c, err := d.center(ctx)
	if err != nil {
		return nil, err
	}
	if s := r.ID["server"]; s != c.access.server {
		return nil, fmt.Errorf("%s is of vSphere server %s, and %s names %s", r.What, s, varURL, c.access.server)
	}
	if c.hasEnded(r.ID["mark"]) {
		return nil, backend.ErrGone
	}
	var ref *types.ManagedObjectReference
	switch r.ID["kind"] {
	case kindVM:
		ref, err = c.findVM(ctx, r.ID)
	case kindPortGroup:
		var on types.ManagedObjectReference
		if !on.FromString(r.ID["switch"]) || r.ID["mark"] == "" {
			return nil, fmt.Errorf("%.80q is not a port group that this backend makes", r.What)
		}
		if r.ID["id"] == "" {
			if err := c.awaitTasks(ctx, on, "portgroup"); err != nil {
				return nil, err
			}
		}
		ref, err = c.portGroup(ctx, on, r.ID["name"], r.ID["mark"])
	default:
		return nil, fmt.Errorf("%.80q was not made by this backend", r.What)
	}
	if err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, backend.ErrGone
	}
	return &attached{c: c, ref: r, at: *ref, done: make(chan struct{})}, nil
}

// Sweep ends VMs concurrently, as many per host as are made at a time. VMs that cannot be ended are left to the undo,
// which reports the error.
func (d *driver) Sweep(ctx context.Context, refs []backend.Ref) {
	last := map[string]backend.Ref{} // by mark: the last Ref has the most information
	for _, r := range refs {
		if r.ID["kind"] == kindVM {
			last[r.ID["mark"]] = r
		}
	}
	if len(last) < 2 {
		return
	}
	c, err := d.center(ctx)
	if err != nil {
		return
	}
	var ends []func() error
	for _, r := range last {
		ends = append(ends, func() error {
			turn, err := c.slot(ctx, r.ID["host"])
			if err != nil {
				return err
			}
			defer turn()
			i, err := d.Attach(ctx, r)
			if err == nil {
				err = i.Kill(ctx)
			}
			return err
		})
	}
	side(ends, len(ends))
}

// findVM finds a VM by its own ID, or by its name in its folder, and only with its mark. It first waits for a clone
// that vCenter is still making: its VM may not exist yet, and an existing one cannot be removed before the clone's
// end.
func (c *center) findVM(ctx context.Context, id map[string]string) (*types.ManagedObjectReference, error) {
	if len(id["mark"]) != 32 || id["name"] == "" || id["folder"] == "" {
		return nil, errors.New("it has no mark, no name or no folder")
	}
	if id["id"] != "" {
		ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: id["id"]}
		if ok, err := c.isRecorded(ctx, ref, id); err != nil || ok {
			return &ref, err
		}
		return nil, nil
	}
	if err := c.awaitTasks(ctx, types.ManagedObjectReference{Type: "VirtualMachine", Value: id["template"]}, "clone"); err != nil {
		return nil, err
	}
	return c.child(ctx, id)
}

// child finds a VM by its name in its vCenter folder.
func (c *center) child(ctx context.Context, id map[string]string) (*types.ManagedObjectReference, error) {
	folder := types.ManagedObjectReference{Type: "Folder", Value: id["folder"]}
	o, err := object.NewSearchIndex(c.client.Client).FindChild(ctx, object.NewFolder(c.client.Client, folder), id["name"])
	if err != nil && !isGone(err) {
		return nil, c.explain("find VM "+id["name"], err)
	}
	if err != nil || o == nil {
		return nil, nil
	}
	ref := o.Reference()
	if ref.Type != "VirtualMachine" {
		return nil, nil
	}
	ok, err := c.isRecorded(ctx, ref, id)
	if err != nil || !ok {
		return nil, err
	}
	return &ref, nil
}

// isRecorded reports whether a VM exists and is the recorded one: it has the mark, or it has no mark yet and the name,
// which ends in 64 random bits of the mark. A vCenter may ignore the settings in a clone's call, which include the
// mark, and the owner may have died before the next call.
func (c *center) isRecorded(ctx context.Context, ref types.ManagedObjectReference, id map[string]string) (bool, error) {
	var vm mo.VirtualMachine
	found, err := c.readOne(ctx, ref, []string{"name", "config.extraConfig"}, &vm)
	if err != nil || !found {
		return false, c.explain("read VM "+ref.Value, err)
	}
	if vm.Config == nil {
		return false, fmt.Errorf("VM %s (%s): vCenter does not say whether it has our mark: it is left until it does", id["name"], ref.Value)
	}
	has, other := hasMark(vm.Config.ExtraConfig, id["mark"])
	return has || !other && vm.Name == id["name"] && strings.HasSuffix(vm.Name, nameEnd(id["mark"])), nil
}

// awaitTasks waits for the end of an object's current tasks whose names contain a word.
func (c *center) awaitTasks(ctx context.Context, of types.ManagedObjectReference, word string) error {
	m := c.client.ServiceContent.TaskManager
	if m == nil || of.Value == "" {
		return nil
	}
	for try := 0; ; try++ {
		list, err := c.recentTasks(ctx, *m)
		if isGone(err) && try < 10 { // vCenter has forgotten one in the meantime
			continue
		}
		if err != nil {
			return c.explain("read vCenter's tasks", err)
		}
		for _, t := range list {
			if ended(&t.Info) || t.Info.Entity == nil || *t.Info.Entity != of || !strings.Contains(strings.ToLower(t.Info.DescriptionId+t.Info.Name), word) {
				continue
			}
			if err := c.over(ctx, t.Self); err != nil {
				return err
			}
		}
		return nil
	}
}

// recentTasks returns vCenter's current and recent tasks. It returns an error of isGone if a task disappeared between
// two queries.
func (c *center) recentTasks(ctx context.Context, m types.ManagedObjectReference) ([]mo.Task, error) {
	var tasks mo.TaskManager
	if err := c.retrieve(ctx, m, []string{"recentTask"}, &tasks); err != nil || len(tasks.RecentTask) == 0 {
		return nil, err
	}
	var list []mo.Task
	err := c.pc.Retrieve(ctx, tasks.RecentTask, []string{"info"}, &list)
	return list, err
}

// over waits for a task's end, whether it succeeds or fails. An error means that the end is not known.
func (c *center) over(ctx context.Context, task types.ManagedObjectReference) error {
	_, err := c.hub.finish(ctx, task)
	var failed *taskError
	if errors.As(err, &failed) || errors.Is(err, errNoTask) {
		return nil
	}
	return err
}

// attached is an object whose owner is gone.
type attached struct {
	c    *center
	ref  backend.Ref
	at   types.ManagedObjectReference
	done chan struct{}
}

// Kill removes the object.
func (a *attached) Kill(ctx context.Context) error {
	var err error
	if a.ref.ID["kind"] == kindPortGroup {
		g := object.NewDistributedVirtualPortgroup(a.c.client.Client, a.at)
		_, err = a.c.do(ctx, "remove "+a.ref.What, func(ctx context.Context) (types.ManagedObjectReference, error) {
			t, err := g.Destroy(ctx)
			return taskRef(t), err
		}, nil)
		if isGone(err) {
			err = nil
		}
	} else {
		err = a.c.removeVM(ctx, a.at, a.ref.ID["name"])
	}
	if err != nil {
		return err
	}
	a.c.setEnded(a.ref.ID["mark"])
	select {
	case <-a.done:
	default:
		close(a.done)
	}
	return nil
}

var errAttached = errors.New("its owner is gone")

func (a *attached) Ref() backend.Ref                                  { return a.ref }
func (a *attached) PID() int                                          { return 0 }
func (a *attached) Agent(context.Context) (io.ReadWriteCloser, error) { return nil, errAttached }
func (a *attached) Pause(context.Context) error                       { return errAttached }
func (a *attached) Resume(context.Context) error                      { return errAttached }
func (a *attached) Done() <-chan struct{}                             { return a.done }
func (a *attached) Err() error                                        { return nil }
func (a *attached) Console(int) []string                              { return nil }
