package vsphere

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/console"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/plan"
)

// instance is a VM that this process has started.
type instance struct {
	d    *driver
	c    *center
	plan plan.VM
	set  *esx.VM
	host *machine
	name string // in vCenter
	mark string
	card *backend.Card
	conf []byte      // configuration for the agent
	log  console.Log // records the VM's history

	mu    sync.Mutex
	vm    types.ManagedObjectReference // zero: not known yet
	seen  guestState
	news  chan struct{} // closed with each change of seen, and replaced
	on    bool          // it was seen powered on
	ended bool
	// removing: remove has begun.
	removing bool
	err      error
	done     chan struct{}

	ending  sync.Mutex // one removal at a time
	removed bool
}

// guestState is a guest's state as reported by VMware Tools.
type guestState struct {
	tools     bool // they run
	addresses []string
	own       netip.Prefix // address of the card with the planned MAC address; not valid: none yet
}

func newInstance(d *driver, r backend.Request, v *esx.VM, m *machine, mark string, card *backend.Card) *instance {
	return &instance{d: d, c: d.c, plan: r.VM, set: v, host: m, name: inventoryName(r.Cluster, r.VM.Name, mark), mark: mark, card: card,
		conf: r.Config, log: console.Log(r.ConsoleLog), news: make(chan struct{}), done: make(chan struct{})}
}

// Ref returns vCenter's IDs: those of the VM's sources, and its own once it is known.
func (i *instance) Ref() backend.Ref {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := backend.Ref{Driver: "vsphere", What: "VM " + i.name, ID: map[string]string{"server": i.c.access.server, "kind": kindVM, "name": i.name,
		"mark": i.mark, "folder": i.d.place.folder.Value, "template": i.d.place.template.Self.Value, "host": i.host.ref.Value}}
	if i.vm.Value != "" {
		r.ID["id"] = i.vm.Value
		r.What += " (" + i.vm.Value + ")"
	}
	return r
}

func (i *instance) setVM(ref types.ManagedObjectReference) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.vm = ref
}

// PID is 0: the VM runs elsewhere.
func (i *instance) PID() int { return 0 }

// watch follows the VM's power state and the reports of VMware Tools.
func (i *instance) watch() error {
	_, _, err := i.c.hub.watch(i.vm, func(u types.ObjectUpdate) {
		if u.Kind == types.ObjectUpdateKindLeave {
			i.gone()
			return
		}
		for _, c := range u.ChangeSet {
			i.changed(c)
		}
	})
	return err
}

// gone records that the VM no longer exists in vCenter. A removal by remove is ignored, because Kill reports its end.
func (i *instance) gone() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.removing {
		i.endLocked(errors.New("it is not in vCenter any more: somebody has removed it"))
	}
}

func (i *instance) changed(c types.PropertyChange) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch v := c.Val.(type) {
	case types.VirtualMachinePowerState:
		if v == types.VirtualMachinePowerStatePoweredOn {
			i.on = true
		} else if i.on && v == types.VirtualMachinePowerStatePoweredOff {
			i.endLocked(nil)
		}
	case string:
		if c.Name == "guest.toolsRunningStatus" {
			i.seen.tools = v == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
		}
		if c.Name == "guest.ipAddress" && v != "" && !slices.Contains(i.seen.addresses, v) {
			i.seen.addresses = append(i.seen.addresses, v)
		}
	case types.ArrayOfGuestNicInfo:
		i.seen.nics(v.GuestNicInfo, i.card.MAC)
	case []types.GuestNicInfo:
		i.seen.nics(v, i.card.MAC)
	}
	close(i.news)
	i.news = make(chan struct{})
}

// nics records the addresses that Tools report; mac is the planned card's. Tools of a guest with one card may omit
// its MAC address.
func (g *guestState) nics(list []types.GuestNicInfo, mac string) {
	for _, n := range list {
		if strings.EqualFold(n.MacAddress, mac) || n.MacAddress == "" && len(list) == 1 {
			if p := leased(n.IpConfig); p.IsValid() {
				g.own = p
			}
		}
		for _, a := range n.IpAddress {
			if !slices.Contains(g.addresses, a) && len(g.addresses) < 256 {
				g.addresses = append(g.addresses, a)
			}
		}
	}
}

// leased returns a card's first IPv4 address that others can reach, with its subnet.
func leased(c *types.NetIpConfigInfo) netip.Prefix {
	if c == nil {
		return netip.Prefix{}
	}
	for _, a := range c.IpAddress {
		ip, err := netip.ParseAddr(a.IpAddress)
		if err != nil || !ip.Is4() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || a.PrefixLength < 1 {
			continue // 169.254: no DHCP server answered
		}
		if p := netip.PrefixFrom(ip, int(a.PrefixLength)); p.IsValid() {
			return p
		}
	}
	return netip.Prefix{}
}

// address returns the address of the VM's first card; config is the agent's configuration.
func (i *instance) address() netip.Prefix {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.card.Address
}

func (i *instance) config() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.conf
}

// Configure replaces the agent's configuration.
func (i *instance) Configure(config []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conf = config
}

// end records that the VM has ended.
func (i *instance) end(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endLocked(err)
}

func (i *instance) endLocked(err error) {
	if !i.ended {
		i.ended, i.err = true, err
		close(i.done)
	}
}

// Pause fails: vCenter's suspend writes the VM's memory to disk, and VMs with devices cannot be suspended at all.
func (i *instance) Pause(context.Context) error {
	return errors.New("backend vsphere cannot suspend a VM in memory: vCenter's suspend writes its memory to a disk")
}

// Resume does nothing, because no VM is paused.
func (i *instance) Resume(context.Context) error { return nil }

// Kill powers the VM off, and removes it with its disks.
func (i *instance) Kill(ctx context.Context) error {
	err := i.remove(ctx)
	if err == nil {
		i.end(nil)
	}
	return err
}

// remove removes the objects that Start has made, in a slot of the host.
func (i *instance) remove(ctx context.Context) error {
	turn, err := i.c.slot(ctx, i.host.name)
	if err != nil {
		return err
	}
	defer turn()
	return i.removeInTurn(ctx)
}

// removeInTurn is remove for a caller that has a slot. It removes the VM also if the result of the creating call is
// not known.
func (i *instance) removeInTurn(ctx context.Context) error {
	i.ending.Lock()
	defer i.ending.Unlock()
	if i.removed {
		return nil
	}
	i.mu.Lock()
	vm := i.vm
	i.mu.Unlock()
	if vm.Value == "" {
		found, err := i.c.findVM(ctx, i.Ref().ID)
		if err != nil {
			return err
		}
		if found != nil {
			vm = *found
		}
	}
	if vm.Value != "" {
		i.mu.Lock()
		i.on, i.removing = false, true // this process ends it
		i.mu.Unlock()
		if err := i.c.removeVM(ctx, vm, i.name); err != nil {
			i.mu.Lock()
			i.removing = false
			i.mu.Unlock()
			return err
		}
		i.c.hub.unwatch(vm, nil)
		i.log.Say("removed: %s", vm.Value)
	}
	i.removed = true
	i.c.setEnded(i.mark)
	return nil
}

// removeVM powers a VM off and destroys it. It waits for another user's task in progress. A VM that disappears in the
// meantime counts as removed.
func (c *center) removeVM(ctx context.Context, ref types.ManagedObjectReference, name string) error {
	for try := 0; ; try++ {
		err := c.removeNow(ctx, object.NewVirtualMachine(c.client.Client, ref), name)
		if err == nil || isGone(err) {
			return nil
		}
		var busy *types.TaskInProgress
		_, is := fault.As(err, &busy)
		if !is && !isState(err) || try == removeTries { // isState: an earlier call has powered it on only now
			return err
		}
		if is && busy.Task.Value != "" {
			if err := c.over(ctx, busy.Task); err != nil {
				return err
			}
		}
		select { // vCenter may release a VM a little later than its task
		case <-time.After(removePause):
		case <-ctx.Done():
			return err
		}
	}
}

// removeTries is how often the removal of a VM is retried after another task in progress, and removePause the time
// between attempts.
const (
	removeTries = 10
	removePause = 100 * time.Millisecond
)

func (c *center) removeNow(ctx context.Context, vm *object.VirtualMachine, name string) error {
	_, err := c.do(ctx, "power off VM "+name, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := vm.PowerOff(ctx)
		return taskRef(t), err
	}, nil)
	if err != nil && !isState(err) {
		return err
	}
	_, err = c.do(ctx, "remove VM "+name, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := vm.Destroy(ctx)
		return taskRef(t), err
	}, nil)
	return err
}

// Done is closed when the VM has ended.
func (i *instance) Done() <-chan struct{} { return i.done }

// Err returns the cause of its end.
func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// Console returns the last lines of the VM's history, because ESXi has no readable console.
func (i *instance) Console(n int) []string { return i.log.LastLines(n) }
