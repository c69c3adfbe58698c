package vcsim

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// For every change of any object, the simulator's property collector copies, by XML, every object that a filter
// watches. With 1,000 VMs it blocks everything else. And a change of a list view may wait forever for an answer to
// WaitForUpdatesEx that itself waits for the list view. The collectors here read only the changes, and do not block.

// collector is the collector that a session finds; those that it creates are linear.
type collector struct{ simulator.PropertyCollector }

// linearCollectors installs it in the simulator.
func linearCollectors() {
	c := &collector{}
	c.Self = types.ManagedObjectReference{Type: "PropertyCollector", Value: "propertyCollector"}
	simulator.Map.Put(c)
}

// CreatePropertyCollector makes a linear one.
func (c *collector) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	l := &linear{}
	l.Self.Type = "PropertyCollector"
	return &methods.CreatePropertyCollectorBody{Res: &types.CreatePropertyCollectorResponse{Returnval: ctx.Session.Put(l).Reference()}}
}

// linear watches the objects of one list view. With a filter over anything else it behaves as the simulator's own.
type linear struct {
	simulator.PropertyCollector
	own bool

	mu      sync.Mutex
	spec    types.PropertyFilterSpec
	changed map[types.ManagedObjectReference]types.ObjectUpdateKind // since the last answer
	watched map[types.ManagedObjectReference]bool
	cancel  context.CancelFunc
}

// CreateFilter accepts the filter, one for each collector.
func (l *linear) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	if l.own = len(req.Spec.ObjectSet) != 1 || req.Spec.ObjectSet[0].Obj.Type != "ListView"; l.own {
		return l.PropertyCollector.CreateFilter(ctx, req)
	}
	l.mu.Lock()
	l.spec, l.changed, l.watched = req.Spec, map[types.ManagedObjectReference]types.ObjectUpdateKind{}, map[types.ManagedObjectReference]bool{}
	l.mu.Unlock()
	simulator.Map.AddHandler(l)
	return &methods.CreateFilterBody{Res: &types.CreateFilterResponse{Returnval: types.ManagedObjectReference{Type: "PropertyFilter", Value: "linear"}}}
}

func (l *linear) note(ref types.ManagedObjectReference, kind types.ObjectUpdateKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[ref] || ref == l.spec.ObjectSet[0].Obj {
		l.changed[ref] = kind
	}
}

// PutObject does nothing: a new object is in no list yet.
func (l *linear) PutObject(mo.Reference) {}

// UpdateObject records a change of a reported property, or of the list.
func (l *linear) UpdateObject(_ *simulator.Context, o mo.Reference, changes []types.PropertyChange) {
	ref := o.Reference()
	for _, p := range l.spec.PropSet {
		for _, path := range p.PathSet {
			for _, c := range changes {
				if p.Type == ref.Type && (strings.HasPrefix(c.Name, path) || strings.HasPrefix(path, c.Name)) || ref.Type == "ListView" {
					l.note(ref, types.ObjectUpdateKindModify)
					return
				}
			}
		}
	}
}

// RemoveObject records the end of an object.
func (l *linear) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	l.note(ref, types.ObjectUpdateKindLeave)
}

// CancelWaitForUpdates ends an open call.
func (l *linear) CancelWaitForUpdates(req *types.CancelWaitForUpdates) soap.HasFault {
	if l.own {
		return l.PropertyCollector.CancelWaitForUpdates(req)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
	}
	return &methods.CancelWaitForUpdatesBody{Res: new(types.CancelWaitForUpdatesResponse)}
}

// DestroyPropertyCollector ends the collector.
func (l *linear) DestroyPropertyCollector(ctx *simulator.Context, req *types.DestroyPropertyCollector) soap.HasFault {
	if l.own {
		return l.PropertyCollector.DestroyPropertyCollector(ctx, req)
	}
	l.CancelWaitForUpdates(nil)
	simulator.Map.RemoveHandler(l)
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyCollectorBody{Res: &types.DestroyPropertyCollectorResponse{}}
}

// WaitForUpdatesEx answers when a watched object has changed.
func (l *linear) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	if l.own {
		return l.PropertyCollector.WaitForUpdatesEx(ctx, req)
	}
	wait, cancel := context.WithCancel(context.Background())
	if o := req.Options; o != nil && o.MaxWaitSeconds != nil {
		wait, cancel = context.WithTimeout(wait, time.Duration(*o.MaxWaitSeconds)*time.Second)
	}
	defer cancel()
	l.mu.Lock()
	l.cancel = cancel
	l.mu.Unlock()
	body := &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{}}
	for {
		if list := l.updates(ctx); len(list) > 0 || req.Version == "" {
			body.Res.Returnval = &types.UpdateSet{Version: "-", FilterSet: []types.PropertyFilterUpdate{{ObjectSet: list}}}
			return body
		}
		select {
		case <-wait.Done():
			if wait.Err() == context.Canceled {
				body.Res = nil
				body.Fault_ = simulator.Fault("", new(types.RequestCanceled))
			}
			return body
		case <-time.After(20 * time.Millisecond): // as in the simulator, changes accumulate
		}
	}
}

// updates returns the changes, and the objects that are in the list for the first time.
func (l *linear) updates(ctx *simulator.Context) []types.ObjectUpdate {
	l.mu.Lock()
	changed := l.changed
	l.changed = map[types.ManagedObjectReference]types.ObjectUpdateKind{}
	l.mu.Unlock()
	at := l.spec.ObjectSet[0].Obj
	var read []types.ObjectSpec
	kinds := map[types.ManagedObjectReference]types.ObjectUpdateKind{}
	var list []types.ObjectUpdate
	for ref, kind := range changed {
		if kind == types.ObjectUpdateKindLeave {
			list = append(list, types.ObjectUpdate{Obj: ref, Kind: kind})
		} else if ref != at {
			kinds[ref] = kind
		}
	}
	if _, ok := changed[at]; ok {
		view, _ := ctx.Session.Get(at).(*simulator.ListView)
		if view == nil {
			return nil
		}
		var now []types.ManagedObjectReference
		ctx.WithLock(view, func() { now = append(now, view.View...) })
		watched := map[types.ManagedObjectReference]bool{}
		l.mu.Lock()
		for _, ref := range now {
			if watched[ref] = true; !l.watched[ref] {
				kinds[ref] = types.ObjectUpdateKindEnter
			}
		}
		l.watched = watched
		l.mu.Unlock()
	}
	for ref := range kinds {
		read = append(read, types.ObjectSpec{Obj: ref})
	}
	if len(read) == 0 {
		return list
	}
	res := l.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{
		{PropSet: l.spec.PropSet, ObjectSet: read, ReportMissingObjectsInResults: types.NewBool(true)}}}).(*methods.RetrievePropertiesExBody)
	if res.Res == nil || res.Res.Returnval == nil {
		return list
	}
	for _, o := range res.Res.Returnval.Objects {
		u := types.ObjectUpdate{Obj: o.Obj, Kind: kinds[o.Obj]}
		for _, p := range o.PropSet {
			u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Name: p.Name, Op: types.PropertyChangeOpAssign, Val: p.Val})
		}
		list = append(list, u)
	}
	return list
}
