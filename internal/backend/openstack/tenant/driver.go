package tenant

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/common/extensions"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/topology/machine"
)

// driver runs VMs in one project of one cloud.
type driver struct {
	name string
	o    options

	mu      sync.Mutex
	c       *center // nil: not logged in
	flavor  flavors.Flavor
	image   string // IDs
	network string
	vms     int             // number in the cluster file
	mark    string          // of the objects that this process creates
	group   string          // ID of the server group; "": none
	ports   map[string]port // ports of the VMs, by VM name
}

// port is a VM's port.
type port struct {
	id      string
	address netip.Addr
}

// clients logs in, once.
func (d *driver) clients(ctx context.Context) (*center, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c == nil {
		c, err := login(ctx, d.o.cloud)
		if err != nil {
			return nil, err
		}
		d.c = c
	}
	return d.c, nil
}

// Probe logs in, and finds the flavor, the image and the network.
func (d *driver) Probe(ctx context.Context, s *spec.Cluster) (*backend.Probed, error) {
	for what, word := range map[string]string{"flavor": d.o.flavor, "image": d.o.image, "network": d.o.network} {
		if word == "" {
			return nil, fmt.Errorf("backend %s: no %s is named: write openstack:CLOUD?flavor=NAME&image=NAME&network=NAME (nearmetal plan --match says which flavors fit)", d.name, what)
		}
	}
	c, err := d.clients(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.find(ctx, c); err != nil {
		return nil, err
	}
	d.vms = 0
	for i := range s.VMs {
		d.vms += s.VMs[i].Count
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	d.mark = hex.EncodeToString(b[:])
	return tenants(), nil
}

// Plans returns the capabilities that a flavor can request: cores, cards and, on hosts with the hook, a region. A
// cluster's servers get those of their flavor, not of the cluster file.
func (d *driver) Plans() *backend.Probed {
	p := tenants()
	p.Caps.Cores, p.Caps.VFIO, p.Caps.Regions = true, true, []string{"ivshmem"}
	p.RegionDevice = "ivshmem"
	return p
}

// tenants returns the capabilities available to a tenant's cluster.
func tenants() *backend.Probed {
	return &backend.Probed{Accel: host.KVM, Caps: backend.Caps{
		Links: []backend.LinkKind{backend.LinkOwn}, OwnDisk: true, Remote: true,
		Why: map[backend.Cap]string{
			backend.CapRegion: "Nova has none; the hook on compute hosts makes one by the flavor (docs/openstack.md)",
			backend.CapPins:   "Nova chooses the CPUs, by the flavor",
			backend.CapVFIO:   "ports of Neutron's do, by vnic=direct",
		}}}
}

// find finds the named objects; each name must be unique.
func (d *driver) find(ctx context.Context, c *center) error {
	pages, err := flavors.ListDetail(c.compute, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
	if err != nil {
		// A user who is not an administrator sees the flavors that they may use without requesting all.
		pages, err = flavors.ListDetail(c.compute, nil).AllPages(ctx)
	}
	if err != nil {
		return explain("flavors", err)
	}
	list, err := flavors.ExtractFlavors(pages)
	if err != nil {
		return explain("flavors", err)
	}
	found := 0
	for _, f := range list {
		if f.Name == d.o.flavor || f.ID == d.o.flavor {
			d.flavor = f
			found++
		}
	}
	if err := exactlyOne("flavor", d.o.flavor, found); err != nil {
		return err
	}
	if err := d.findImage(ctx, c); err != nil {
		return err
	}
	np, err := networks.List(c.network, networks.ListOpts{}).AllPages(ctx)
	if err != nil {
		return explain("networks", err)
	}
	nets, err := networks.ExtractNetworks(np)
	if err != nil {
		return explain("networks", err)
	}
	found = 0
	for _, n := range nets {
		if n.Name == d.o.network || n.ID == d.o.network {
			d.network = n.ID
			found++
		}
	}
	return exactlyOne("network", d.o.network, found)
}

func (d *driver) findImage(ctx context.Context, c *center) error {
	pages, err := images.List(c.image, images.ListOpts{}).AllPages(ctx)
	if err != nil {
		return explain("images", err)
	}
	list, err := images.ExtractImages(pages)
	if err != nil {
		return explain("images", err)
	}
	found := 0
	for _, i := range list {
		if i.Name != d.o.image && i.ID != d.o.image || i.Status != images.ImageStatusActive {
			continue
		}
		found++
		d.image = i.ID
		for key, good := range map[string][]string{"hw_disk_bus": {"virtio", "scsi"}, "hw_vif_model": {"virtio"}} {
			v, _ := i.Properties[key].(string)
			if v != "" && !strings.Contains(" "+strings.Join(good, " ")+" ", " "+v+" ") {
				return fmt.Errorf("image %s has %s=%.40s: an emulated device where virtio is needed", d.o.image, key, v)
			}
		}
	}
	return exactlyOne("image", d.o.image, found)
}

// exactlyOne fails unless n, the number of images, flavors or networks (what) with that name or ID, is 1.
func exactlyOne(what, name string, n int) error {
	switch n {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("the cloud shows no %s %.80q to this project", what, name)
	}
	return fmt.Errorf("the cloud has %d of %s %.80q: say its ID", n, what, name)
}

// Hosts returns the cloud's promise as one machine: as many VMs of the flavor as the cluster file has. Nova does not
// report on which hosts they will run.
func (d *driver) Hosts(context.Context) ([]topology.Host, error) {
	nodes, threads := 1, 1
	if n, err := strconv.Atoi(d.flavor.ExtraSpecs["hw:numa_nodes"]); err == nil && n > 0 && n <= 64 && d.flavor.VCPUs%n == 0 {
		nodes = n
	}
	if n, err := strconv.Atoi(d.flavor.ExtraSpecs["hw:cpu_threads"]); err == nil && n > 0 && d.flavor.VCPUs/nodes%n == 0 {
		threads = n
	}
	if d.flavor.VCPUs < 1 || d.flavor.VCPUs*d.vms > 65536 || d.flavor.RAM < 1 {
		return nil, fmt.Errorf("flavor %s: %d vCPUs and %d MiB for %d VMs make no machine", d.o.flavor, d.flavor.VCPUs, d.flavor.RAM, d.vms)
	}
	perNode := d.flavor.RAM / nodes
	m := &machine.Machine{
		Name: "openstack", Model: "a server of flavor " + d.flavor.Name,
		Packages: nodes * d.vms, CoresPerNode: d.flavor.VCPUs / nodes / threads, Threads: threads,
		MemoryMiB: perNode, FreeMiB: perNode,
		// No cloud reports a server's caches. A plan needs some, so these are a common server's.
		L1: 32, L2: 1024, L3Size: 16384,
	}
	if err := m.Settle(); err != nil {
		return nil, err
	}
	h, err := topology.FromMachine(m)
	if err != nil {
		return nil, err
	}
	return []topology.Host{*h}, nil
}

// Check rejects a VM that is larger than the flavor.
func (d *driver) Check(vm plan.VM, _ backend.Settings) error {
	switch {
	case vm.VCPUs > d.flavor.VCPUs:
		return fmt.Errorf("VM %s has %d vCPUs, and flavor %s %d", vm.Name, vm.VCPUs, d.flavor.Name, d.flavor.VCPUs)
	case vm.MemoryBytes>>20 > uint64(d.flavor.RAM):
		return fmt.Errorf("VM %s has %d MiB, and flavor %s %d", vm.Name, vm.MemoryBytes>>20, d.flavor.Name, d.flavor.RAM)
	}
	return nil
}

// Prepare compares the project's quota with the cluster's needs before anything is created, and creates the server
// group.
func (d *driver) Prepare(ctx context.Context, p *plan.Plan, record func(backend.Ref) error) error {
	c, err := d.clients(ctx)
	if err != nil {
		return err
	}
	if err := d.checkNames(ctx, c, p); err != nil {
		return err
	}
	if err := d.guarded(ctx, c); err != nil {
		return err
	}
	l, err := limits.Get(ctx, c.compute, nil).Extract()
	if err != nil {
		return explain("quotas", err)
	}
	a, n := l.Absolute, len(p.VMs)
	for _, q := range []struct {
		what             string
		most, used, need int
	}{
		{"servers", a.MaxTotalInstances, a.TotalInstancesUsed, n},
		{"vCPUs", a.MaxTotalCores, a.TotalCoresUsed, n * d.flavor.VCPUs},
		{"MiB of memory", a.MaxTotalRAMSize, a.TotalRAMUsed, n * d.flavor.RAM},
	} {
		if q.most >= 0 && q.used+q.need > q.most {
			return fmt.Errorf("the project's quota: %d %s are needed, and %d of %d are in use", q.need, q.what, q.used, q.most)
		}
	}
	if d.o.group == "none" || n < 2 {
		return nil
	}
	// Clouds of releases with another way of counting return 0.
	if most := a.MaxServerGroupMembers; most > 0 && n > most {
		return fmt.Errorf("the project's quota: a server group has %d servers at most, and %d are needed: say group=none in the backend's name", most, n)
	}
	if most := a.MaxServerGroups; most > 0 && a.TotalServerGroupsUsed >= most {
		return fmt.Errorf("the project's quota: all of its %d server groups are in use: say group=none in the backend's name, or delete one", most)
	}
	ref := d.ref(kindGroup, "nearmetal-"+d.mark)
	if err := record(ref); err != nil {
		return err
	}
	g, err := servergroups.Create(ctx, c.compute, servergroups.CreateOpts{Name: ref.ID[keyName], Policy: d.o.group}).Extract()
	settled(ref, err)
	if gophercloud.ResponseCodeIs(err, http.StatusForbidden) {
		return fmt.Errorf("this project may make no server group (%w): say group=none in the backend's name", explain("policy "+d.o.group, err))
	}
	if err != nil {
		return fmt.Errorf("%w (group=none asks for no server group)", explain("making a server group with policy "+d.o.group, err))
	}
	d.group = g.ID
	return nil
}

// guarded rejects a cloud whose networks have no security groups, unless the backend's name permits that.
func (d *driver) guarded(ctx context.Context, c *center) error {
	if d.o.guard == "none" {
		return nil
	}
	pages, err := extensions.List(c.network).AllPages(ctx)
	if err != nil {
		return nil // the cloud does not report it: creating the group will fail with the cause
	}
	list, err := extensions.ExtractExtensions(pages)
	if err != nil || slices.ContainsFunc(list, func(e extensions.Extension) bool { return e.Alias == "security-group" }) {
		return nil
	}
	return errors.New("the cloud's networks have no security groups, so all who are in the VMs' network reach all of their ports: say security=none in the backend's name to go without")
}

// checkNames rejects a cluster whose servers' names are already used.
func (d *driver) checkNames(ctx context.Context, c *center, p *plan.Plan) error {
	pages, err := servers.List(c.compute, servers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return explain("servers", err)
	}
	list, err := servers.ExtractServers(pages)
	if err != nil {
		return explain("servers", err)
	}
	names := map[string]bool{}
	for i := range p.VMs {
		names[serverName(p.Cluster, p.VMs[i].Name)] = true
	}
	for _, s := range list {
		if names[s.Name] {
			return fmt.Errorf("the project has a server %s already: another cluster of this name? choose another with --name", s.Name)
		}
	}
	return nil
}

// serverName returns the name of a VM's server.
func serverName(cluster, vm string) string {
	if cluster == "" {
		cluster = "nearmetal"
	}
	return openstack.ServerName(cluster, vm)
}

// Close has nothing to end, because a token expires.
func (d *driver) Close() error { return nil }

var errNotOurs = errors.New("the journal's entry is not of this backend")
