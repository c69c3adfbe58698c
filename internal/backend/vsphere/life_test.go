package vsphere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/vcsim"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// fileText is the cluster file of these tests.
const fileText = `
name: demo
backend: vsphere
root: backend
vms:
  - {name: mpi, count: 2, vcpus: 10, memory: 40GiB, devices: [{type: vf, pf: vmnic4}]}
vsphere: {template: ` + vcsim.Template + `, portGroup: DC0_DVPG0}
`

// journal keeps the Refs that a cluster would have recorded.
type journal struct {
	mu   sync.Mutex
	refs []backend.Ref
	full bool // the disk is full
}

var errFull = errors.New("no space left on device")

func (j *journal) record(r backend.Ref) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full {
		return errFull
	}
	j.refs = append(j.refs, r)
	return nil
}

// undo undoes like a sweep: each Ref in a driver of its own, the last first.
func (j *journal) undo(t *testing.T) {
	t.Helper()
	for k := len(j.refs) - 1; k >= 0; k-- {
		r := j.refs[k]
		d, err := backend.Open(r.Driver)
		if err != nil {
			t.Fatal(err)
		}
		i, err := d.Attach(context.Background(), r)
		if err == nil {
			err = i.Kill(context.Background())
		} else if errors.Is(err, backend.ErrGone) {
			err = nil
		}
		if err != nil {
			t.Errorf("%s: %v", r.What, err)
		}
		d.Close()
	}
}

// clusterFile reads a cluster file with its defaults.
func clusterFile(t *testing.T, text string) *spec.Cluster {
	t.Helper()
	c, err := spec.Parse("cluster.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	spec.Defaults(c)
	return c
}

// life uses a driver as package cluster does.
type life struct {
	d   *driver
	c   *spec.Cluster
	p   *plan.Plan
	j   *journal
	vms []backend.Instance
}

// begin makes all calls before the VMs start, and returns the first error.
func begin(t *testing.T, text string) (*life, error) {
	t.Helper()
	ctx := context.Background()
	l := &life{d: &driver{}, c: clusterFile(t, text), j: &journal{}}
	t.Cleanup(func() { l.d.Close() })
	found, err := l.d.Probe(ctx, l.c)
	if err == nil {
		err = backend.Fit(l.c, found)
	}
	if err != nil {
		return l, err
	}
	hosts, err := l.d.Hosts(ctx)
	if err != nil {
		return l, err
	}
	if l.p, err = plan.Make(l.c, hosts, plan.Ledger{}); err != nil {
		return l, err
	}
	if err := l.d.Prepare(ctx, l.p, l.j.record); err != nil {
		return l, err
	}
	var names []string
	for _, v := range l.p.VMs {
		names = append(names, v.Name)
	}
	if _, err := l.d.Network(ctx, names, l.c.Network, l.j.record); err != nil {
		return l, err
	}
	for _, v := range l.p.VMs {
		if err := l.d.Check(v, backend.Settings{}); err != nil {
			return l, err
		}
	}
	return l, nil
}

// start starts all VMs concurrently.
func (l *life) start(ctx context.Context) error {
	l.vms = make([]backend.Instance, len(l.p.VMs))
	var all []func() error
	for i := range l.p.VMs {
		all = append(all, func() (err error) {
			l.vms[i], err = l.d.Start(ctx, backend.Request{Cluster: l.c.Name, VM: l.p.VMs[i], Record: l.j.record})
			return err
		})
	}
	return side(all, len(all))
}

// vms returns the names of all existing VMs.
func vms() []string {
	var list []string
	for _, e := range simulator.Map.All("VirtualMachine") {
		list = append(list, e.(*simulator.VirtualMachine).Name)
	}
	slices.Sort(list)
	return list
}

// TestLife: two VMs are cloned, configured, started, read back, found by another process, and removed. Other users'
// objects stay unchanged.
func TestLife(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	before := vms()
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(vms()); n != len(before)+2 {
		t.Fatal(vms())
	}
	for k, i := range l.vms {
		f := i.(backend.Inspector).Inspect(context.Background(), &l.p.VMs[k], nil)
		for _, s := range f.Settings {
			if !s.OK {
				t.Errorf("%s: planned %s, found %s", s.What, s.Planned, s.Found)
			}
		}
		if len(f.Settings) < 12 {
			t.Error(f.Settings)
		}
	}
	// The first Ref of each VM is from before it was made, the second has vCenter's ID. Neither contains a secret.
	if len(l.j.refs) != 4 || strings.Contains(fmt.Sprint(l.j.refs), vcsim.Password) {
		t.Errorf("%v", l.j.refs)
	}
	if err := l.vms[0].Kill(context.Background()); err != nil {
		t.Error(err)
	}
	<-l.vms[0].Done()
	if err := l.vms[0].Err(); err != nil {
		t.Error(err)
	}
	l.d.Close()
	l.j.undo(t)
	if got := vms(); !slices.Equal(got, before) {
		t.Errorf("left: %v, were %v", got, before)
	}
}

// TestDynamic: a function that vCenter chooses by its IDs is requested that way and read back, and the plan reports
// what is not guaranteed. One that vCenter does not list is rejected before anything is made.
func TestDynamic(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := vms()
	text := strings.NewReplacer("count: 2", "count: 1", "{type: vf, pf: vmnic4}", "{type: pci, address: '0000:3b:00.1', dynamic: true}").Replace(fileText)
	efi(vcsim.Template)
	l, err := begin(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if lost := strings.Join(l.d.Advise(l.c, l.p, l.d.hosts), "\n"); !strings.Contains(lost, "is vCenter's choice") {
		t.Error(lost)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if asked := s.Last("ReconfigVM_Task"); !strings.Contains(asked, "<vendorId>5555</vendorId><deviceId>4119</deviceId>") || strings.Contains(asked, "3b:00.1") {
		t.Error(asked)
	}
	f := l.vms[0].(backend.Inspector).Inspect(context.Background(), &l.p.VMs[0], nil)
	if !slices.Contains(f.Settings, backend.Setting{What: "device dynamic 15b3:1017", Planned: "in the VM", Found: "in the VM", OK: true}) {
		t.Errorf("%v", f.Settings)
	}
	l.j.undo(t)
	for _, e := range simulator.Map.All("ClusterComputeResource") {
		b := simulator.Map.Get(*e.(*simulator.ClusterComputeResource).EnvironmentBrowser).(*simulator.EnvironmentBrowser)
		b.QueryConfigTargetResponse.Returnval.DynamicPassthrough = nil
	}
	if _, err := begin(t, text); err == nil || !strings.Contains(err.Error(), "lists no function 15b3:1017") {
		t.Error(err)
	}
	if got := vms(); !slices.Equal(got, before) {
		t.Errorf("left: %v", got)
	}
}

// TestOwnSettings: secure boot, a vGPU and a PVRDMA card are requested, read back, and reported in the losses.
// Settings that the template or a host does not support are rejected before anything is made.
func TestOwnSettings(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	before := vms()
	with := func(keys string) string {
		return strings.NewReplacer("count: 2", "count: 1", ", devices: [{type: vf, pf: vmnic4}]", "", "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, "+keys).Replace(fileText)
	}
	text := with("hosts: [DC0_C0], secureBoot: true, vgpu: " + vcsim.VGPU + ", pvrdma: DC0_DVPG0")
	for _, x := range []struct{ keys, want string }{
		{"secureBoot: true", "and secure boot needs efi"},
		{"vgpu: nothing", "offers no vGPU profile nothing: it has " + vcsim.VGPU},
		{"pvrdma: nothing", "find port group"},
		{"pvrdma: VM Network", "not a port group of a distributed switch"},
		{"dhcp: true, gateway: 10.77.0.1", "leave gateway out"},
	} {
		if _, err := begin(t, with(x.keys)); err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	template := simVM(vcsim.Template).Config
	template.Version = "vmx-11"
	if _, err := begin(t, strings.Replace(with("pvrdma: DC0_DVPG0"), "vcpus: 10", "vcpus: 2", 1)); err == nil || !strings.Contains(err.Error(), "PVRDMA cards need 13") {
		t.Error(err)
	}
	template.Version = "vmx-20"
	for _, h := range s.Hosts() {
		h.Config.SharedPassthruGpuTypes = nil
	}
	if _, err := begin(t, with("vgpu: "+vcsim.VGPU)); err == nil || !strings.Contains(err.Error(), "offers no vGPU:") {
		t.Error(err)
	}
	for _, h := range s.Hosts() {
		h.Config.SharedPassthruGpuTypes = []string{vcsim.VGPU}
	}
	efi(vcsim.Template)
	l, err := begin(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if lost := strings.Join(l.d.Advise(l.c, l.p, l.d.hosts), "\n"); !strings.Contains(lost, "its vGPU is of") || !strings.Contains(lost, "PVRDMA card sends by") {
		t.Error(lost)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	read := func() (ok, differ int) {
		f := l.vms[0].(backend.Inspector).Inspect(context.Background(), &l.p.VMs[0], nil)
		for _, s := range f.Settings {
			switch own := s.What == "efiSecureBootEnabled" || s.What == "device vgpu "+vcsim.VGPU || s.What == "device pvrdma DC0_DVPG0"; {
			case own && s.OK:
				ok++
			case !s.OK:
				differ++
			}
		}
		return ok, differ
	}
	if ok, differ := read(); ok != 3 || differ != 0 {
		t.Errorf("%d read back, %d differ", ok, differ)
	}
	// Another user removes them.
	vm := simulator.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: l.vms[0].Ref().ID["id"]}).(*simulator.VirtualMachine)
	vm.Config.BootOptions.EfiSecureBootEnabled = types.NewBool(false)
	vm.Config.Hardware.Device = slices.DeleteFunc(vm.Config.Hardware.Device, func(d types.BaseVirtualDevice) bool {
		_, gpu := d.(*types.VirtualPCIPassthrough)
		_, card := d.(*types.VirtualVmxnet3Vrdma)
		return gpu || card
	})
	if ok, differ := read(); ok != 0 || differ != 3 {
		t.Errorf("taken away: %d read back, %d differ", ok, differ)
	}
	l.j.undo(t)
	if got := vms(); !slices.Equal(got, before) {
		t.Errorf("left: %v", got)
	}
}

// TestLeased: a DHCP address belongs to the card with the planned MAC address, and can be reached by others.
func TestLeased(t *testing.T) {
	nic := func(mac, ip string, bits int32) types.GuestNicInfo {
		return types.GuestNicInfo{MacAddress: mac, IpAddress: []string{ip}, IpConfig: &types.NetIpConfigInfo{IpAddress: []types.NetIpConfigInfoIpAddress{{IpAddress: ip, PrefixLength: bits}}}}
	}
	const ours, other = "00:50:56:0A:00:01", "00:50:56:0a:00:02"
	for _, x := range []struct {
		nics []types.GuestNicInfo
		want string
	}{
		{[]types.GuestNicInfo{nic(other, "192.0.2.9", 24), nic(ours, "192.0.2.7", 24)}, "192.0.2.7/24"},
		{[]types.GuestNicInfo{nic("", "192.0.2.7", 24)}, "192.0.2.7/24"},
		{[]types.GuestNicInfo{nic("", "192.0.2.9", 24), nic("", "192.0.2.7", 24)}, "invalid Prefix"},
		{[]types.GuestNicInfo{nic(ours, "169.254.3.4", 16)}, "invalid Prefix"},
		{[]types.GuestNicInfo{nic(ours, "0.0.0.0", 8)}, "invalid Prefix"},
		{[]types.GuestNicInfo{nic(ours, "192.0.2.7", 99)}, "invalid Prefix"},
		{[]types.GuestNicInfo{nic(ours, "fe80::1", 64)}, "invalid Prefix"},
		{[]types.GuestNicInfo{{MacAddress: ours}}, "invalid Prefix"},
	} {
		var g guestState
		if g.nics(x.nics, strings.ToLower(ours)); g.own.String() != x.want {
			t.Errorf("%+v: %s, want %s", x.nics, g.own, x.want)
		}
	}
}

// TestNoLease: in a network without a DHCP server, the error has the report of VMware Tools, and the card without an
// address.
func TestNoLease(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	l, err := begin(t, strings.NewReplacer("count: 2", "count: 1", "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, dhcp: true").Replace(fileText))
	if err != nil {
		t.Fatal(err)
	}
	defer l.j.undo(t)
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	i := l.vms[0].(*instance)
	vm := simulator.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: i.Ref().ID["id"]}).(*simulator.VirtualMachine)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	tooLate := errors.New("the VMs were not ready")
	for _, x := range []struct{ tools, ip, want string }{
		{"guestToolsNotRunning", "", "the template needs open-vm-tools"},
		{"guestToolsRunning", "", "is there a DHCP server"},
		{"guestToolsRunning", "169.254.3.4", "169.254.3.4, and none from DHCP on its card " + i.card.MAC},
	} {
		vm.Guest = &types.GuestInfo{ToolsRunningStatus: x.tools}
		if x.ip != "" {
			vm.Guest.Net = []types.GuestNicInfo{{MacAddress: i.card.MAC, IpAddress: []string{x.ip},
				IpConfig: &types.NetIpConfigInfo{IpAddress: []types.NetIpConfigInfoIpAddress{{IpAddress: x.ip, PrefixLength: 16}}}}}
		}
		i.mu.Lock()
		i.seen = guestState{}
		i.mu.Unlock()
		waiting, end := context.WithCancelCause(ctx)
		i.awaitGuest(ctx, func(*guestState) bool { return true }) // reads the current state
		end(tooLate)
		if _, err := i.Address(waiting); !errors.Is(err, tooLate) || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
}

// TestUnknownHostKey: if the user's own ssh does not know the clone's host key, the error has the name under which it
// must be known.
func TestUnknownHostKey(t *testing.T) {
	if err := vcsim.GuestsWork(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	vcsim.Start(t, vcsim.Options{Guests: true})
	l, err := begin(t, fmt.Sprintf(`
name: key
backend: vsphere
root: backend
vms: [{name: vm, count: 1, vcpus: 2, memory: 4GiB}]
network: {subnet: %s}
vsphere: {template: %s, portGroup: DC0_DVPG0}
`, vcsim.GuestSubnet, vcsim.Template))
	if err != nil {
		t.Fatal(err)
	}
	defer l.j.undo(t)
	i, err := l.d.Start(context.Background(), backend.Request{Cluster: l.c.Name, VM: l.p.VMs[0], Record: l.j.record, Config: []byte("version 1\n"), ConsoleLog: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	want := "write the template's host key into known_hosts under the name nearmetal-" + strings.ToLower(vcsim.Template)
	if _, err := i.Agent(context.Background()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestNotOurs: a VM that has the recorded ID or name, but not the mark, belongs to another user.
func TestNotOurs(t *testing.T) {
	vcsim.Start(t, vcsim.Options{})
	l, err := begin(t, fileText)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	vm := simulator.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: l.vms[0].Ref().ID["id"]}).(*simulator.VirtualMachine)
	for _, o := range vm.Config.ExtraConfig {
		if v := o.GetOptionValue(); v.Key == markKey {
			v.Value = "another's"
		}
	}
	l.j.undo(t)
	if got := vms(); !slices.Contains(got, vm.Name) || len(got) != 3 {
		t.Errorf("%v", got)
	}
}
