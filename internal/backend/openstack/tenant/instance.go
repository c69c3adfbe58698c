package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/console"
	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/guest/carry"
	"nearmetal/internal/spec"
)

var (
	// buildPause and watchPause are the times between queries of a server's state, because Nova has no events for
	// tenants.
	buildPause = time.Second
	watchPause = 2 * time.Second
	// dialPause is the time between attempts to connect to an agent that does not listen yet.
	dialPause = time.Second
)

// Start creates a VM's server and waits until Nova has built it.
func (d *driver) Start(ctx context.Context, r backend.Request) (backend.Instance, error) {
	fail := func(err error) (backend.Instance, error) { return nil, fmt.Errorf("VM %s: %w", r.VM.Name, err) }
	c, err := d.clients(ctx)
	if err != nil {
		return fail(err)
	}
	at, ok := d.ports[r.VM.Name]
	if !ok {
		return fail(errors.New("it has no port"))
	}
	i := &instance{log: console.Log(r.ConsoleLog), d: d, c: c, address: at.address, ref: d.ref(kindServer, serverName(r.Cluster, r.VM.Name)), done: make(chan struct{})}
	if i.secret, err = carry.NewSecret(); err != nil {
		return fail(err)
	}
	s := carry.Settings{Name: r.VM.Name, Secret: i.secret, Listen: fmt.Sprintf(":%d", carry.Port), Config: string(r.Config)}
	data, err := s.UserData()
	if err != nil {
		return fail(err)
	}
	if err := r.Record(i.ref); err != nil {
		return fail(err)
	}
	drive := true
	var hints servers.SchedulerHintOptsBuilder
	if d.group != "" {
		hints = servers.SchedulerHintOpts{Group: d.group}
	}
	made, err := servers.Create(ctx, c.compute, servers.CreateOpts{
		Name: i.ref.ID[keyName], FlavorRef: d.flavor.ID, ImageRef: d.image, ConfigDrive: &drive, UserData: data,
		Networks: []servers.Network{{Port: at.id}}, Metadata: map[string]string{metaMark: d.mark},
	}, hints).Extract()
	settled(i.ref, err)
	if err != nil {
		// Nova may have created it nevertheless: the mark identifies it.
		return fail(errors.Join(explain("making a server", err), i.undo()))
	}
	i.id = made.ID
	i.log.Say("server %s is being built (openstack console log show %s)", i.ref.ID[keyName], i.id)
	if err := i.built(ctx); err != nil {
		return fail(errors.Join(err, i.undo()))
	}
	i.log.Say("it is built, with the address %s", i.address)
	go i.watch()
	return i, nil
}

// undoTime bounds the deletion of objects that a failed start has created.
const undoTime = 2 * time.Minute

// undo deletes the server, even if the context of its start has ended.
func (i *instance) undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	ids := []string{i.id}
	if i.id == "" {
		var err error
		if ids, err = search(ctx, i.c, i.ref); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := remove(ctx, i.c, kindServer, id); err != nil {
			return err
		}
	}
	return nil
}

// instance is a server that this process has created.
type instance struct {
	d       *driver
	c       *center
	ref     backend.Ref
	id      string
	address netip.Addr
	secret  string
	log     console.Log // Nova's actions; the console itself is only available from Nova

	mu   sync.Mutex
	err  error
	over bool
	done chan struct{}
}

// built waits until Nova has built the server.
func (i *instance) built(ctx context.Context) error {
	for {
		s, err := servers.Get(ctx, i.c.compute, i.id).Extract()
		switch {
		case err != nil:
			return explain("a server that is being built", err)
		case s.Status == "ACTIVE":
			return nil
		case s.Status == "ERROR":
			return fault(s)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server is not built yet (%s): %w", s.Status, context.Cause(ctx))
		case <-time.After(buildPause):
		}
	}
}

// fault returns Nova's reason for a server that could not be built.
func fault(s *servers.Server) error {
	text := s.Fault.Message
	if text == "" {
		text = "Nova does not say why"
	}
	if strings.Contains(text, "No valid host") {
		text += " (no host has room for the flavor, or can place it; nearmetal plan --match says what a flavor asks for)"
	}
	return fmt.Errorf("Nova could not build the server: %s", oneLine(errors.New(text)))
}

// watch polls the server until it has ended.
func (i *instance) watch() {
	for {
		select {
		case <-i.done:
			return
		case <-time.After(watchPause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		s, err := servers.Get(ctx, i.c.compute, i.id).Extract()
		cancel()
		switch {
		case notFound(err):
			i.end(errors.New("somebody deleted the server"))
		case err != nil: // an error of the API, not the server's state
		case s.Status == "SHUTOFF" || s.Status == "DELETED" || s.Status == "SOFT_DELETED":
			i.end(nil)
		case s.Status == "ERROR":
			i.end(fault(s))
		}
	}
}

func (i *instance) end(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.over, i.err = true, err
		close(i.done)
	}
}

func (i *instance) Ref() backend.Ref { return i.ref }

// PID is 0: the VM is elsewhere.
func (i *instance) PID() int { return 0 }

// Promised returns the region of the flavor's extra spec. A flavor may have one that only its hosts know; a tenant
// cannot see it.
func (i *instance) Promised() (uint64, string) {
	size, err := spec.ParseSize(i.d.flavor.ExtraSpecs[openstack.RegionSpec])
	if err != nil {
		return 0, ""
	}
	return uint64(size), "flavor " + i.d.flavor.Name + " promises it, and its host's hook did not plug it: nearmetal host openstack-region status says why there"
}

// Agent connects to the agent, once the guest has started it.
func (i *instance) Agent(ctx context.Context) (io.ReadWriteCloser, error) {
	at := netip.AddrPortFrom(i.address, carry.Port).String()
	for {
		conn, err := carry.Dial(ctx, at, i.secret)
		if err == nil {
			i.log.Say("its agent answers")
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no agent answers at %s (%s): is nearmetal in the image, and is this host in a network that reaches %s?", at, oneLine(err), i.d.o.network)
		case <-i.done:
			return nil, errors.Join(errors.New("the server ended before its agent answered"), i.Err())
		case <-time.After(dialPause):
		}
	}
}

func (i *instance) Pause(ctx context.Context) error {
	return i.act(ctx, "pausing", "PAUSED", servers.Pause(ctx, i.c.compute, i.id).ExtractErr())
}

func (i *instance) Resume(ctx context.Context) error {
	return i.act(ctx, "resuming", "ACTIVE", servers.Unpause(ctx, i.c.compute, i.id).ExtractErr())
}

// act waits until an action, whose answer was err, has brought the server into the wanted state.
func (i *instance) act(ctx context.Context, what, want string, err error) error {
	for {
		s, bad := servers.Get(ctx, i.c.compute, i.id).Extract()
		if bad == nil && s.Status == want {
			return nil
		}
		if err != nil { // the server was not in the state that the action needs
			return explain(what+" a server", err)
		}
		if bad != nil {
			return explain(what+" a server", bad)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s a server: it is %s: %w", what, s.Status, context.Cause(ctx))
		case <-time.After(buildPause):
		}
	}
}

// Kill deletes the server.
func (i *instance) Kill(ctx context.Context) error {
	if err := remove(ctx, i.c, kindServer, i.id); err != nil {
		return err
	}
	i.end(nil)
	return nil
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// consoleTime bounds the query of a console.
const consoleTime = 10 * time.Second

// Console asks Nova for the end of the server's console.
func (i *instance) Console(n int) []string {
	ctx, cancel := context.WithTimeout(context.Background(), consoleTime)
	defer cancel()
	text, err := servers.ShowConsoleOutput(ctx, i.c.compute, i.id, servers.ShowConsoleOutputOpts{Length: n}).Extract()
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-n):]
	for k := range lines {
		lines[k] = console.Harmless(lines[k], 400)
	}
	return lines
}

// Attach finds the object of a Ref.
func (d *driver) Attach(ctx context.Context, r backend.Ref) (backend.Instance, error) {
	c, err := d.clients(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := search(ctx, c, r)
	for err == nil && len(ids) == 0 && late(r) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(goneWait): // no event reports that an object was created
		}
		ids, err = search(ctx, c, r)
	}
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, backend.ErrGone
	}
	return &attached{c: c, ref: r, ids: ids, done: make(chan struct{})}, nil
}

// attached is an object whose owner is gone: it can be deleted.
type attached struct {
	c    *center
	ref  backend.Ref
	ids  []string
	once sync.Once
	done chan struct{}
}

var errAttached = errors.New("its owner is gone: it can only be ended")

func (a *attached) Ref() backend.Ref { return a.ref }

func (a *attached) PID() int { return 0 }

func (a *attached) Agent(context.Context) (io.ReadWriteCloser, error) { return nil, errAttached }

func (a *attached) Pause(context.Context) error { return errAttached }

func (a *attached) Resume(context.Context) error { return errAttached }

func (a *attached) Kill(ctx context.Context) error {
	for _, id := range a.ids {
		if err := remove(ctx, a.c, a.ref.ID[keyKind], id); err != nil {
			return err
		}
	}
	a.once.Do(func() { close(a.done) })
	return nil
}

func (a *attached) Done() <-chan struct{} { return a.done }

func (a *attached) Err() error { return nil }

func (a *attached) Console(int) []string { return nil }
