package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// devices are the host's functions that a cluster may take, and those it has.
type devices struct {
	host   *device.Host
	taken  map[string]string // address → who has it, or why it cannot be had
	claims []*device.Claim
}

// wantsDevices tells whether any VM is to have a device.
func wantsDevices(s *spec.Cluster) bool {
	for i := range s.VMs {
		if len(s.VMs[i].Devices) > 0 {
			return true
		}
	}
	return false
}

// findDevices looks at which functions this user may have, of those in only where it is not nil;
// it gives nil where no VM wants one.
func findDevices(s *spec.Cluster, only []string) (*devices, error) {
	if !wantsDevices(s) {
		return nil, nil
	}
	h, err := device.Open("/", 0)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	d := &devices{host: h, taken: map[string]string{}}
	list, err := h.List(true)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, f := range list {
		if len(f.VFs) > 0 {
			continue // a card that is held takes its VFs along in a plan; and Bind refuses it as a whole
		}
		if only != nil && !slices.Contains(only, f.Address) {
			d.taken[f.Address] = "is not the job's"
			continue
		}
		if why := h.Usable(f); why != "" {
			d.taken[f.Address] = why
		}
	}
	return d, nil
}

// hold puts what cannot be had into the ledger.
func (d *devices) hold(l *plan.Ledger, h *topology.Host) {
	if d == nil {
		return
	}
	held := plan.Held{Host: h.Name, Cluster: "others"}
	for a := range d.taken {
		held.Devices = append(held.Devices, a)
	}
	sort.Strings(held.Devices)
	l.Held = append(l.Held, held)
}

// explain adds to a plan that failed why VFs and devices could not be had.
func (d *devices) explain(err error, h *topology.Host) error {
	if d == nil || err == nil {
		return err
	}
	var why []string
	for a, w := range d.taken {
		if f := h.Device(a); f != nil && f.IsVF() {
			why = append(why, a+" "+w)
		}
	}
	sort.Strings(why)
	const most = 4
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	if len(why) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(why, ", "))
}

// claim takes the functions of a plan. A *device.ClaimedError says which one another cluster
// was quicker with.
func (d *devices) claim(p *plan.Plan) error {
	if d == nil {
		return nil
	}
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			c, err := d.host.Claim(v.Address, p.Cluster)
			if err != nil {
				d.close()
				return err
			}
			d.claims = append(d.claims, c)
		}
	}
	return nil
}

// close gives the claims back.
func (d *devices) close() {
	if d == nil {
		return
	}
	for _, c := range d.claims {
		c.Close()
	}
	d.claims = nil
}

// planned makes the plan, and takes its devices: when another cluster takes one in the
// meantime, the plan is made anew without it.
func (d *devices) planned(s *spec.Cluster, h *topology.Host, ledger plan.Ledger) (*plan.Plan, error) {
	for {
		l := ledger
		l.Held = append([]plan.Held(nil), ledger.Held...)
		d.hold(&l, h)
		p, err := plan.Make(s, []topology.Host{*h}, l)
		if err != nil {
			return nil, d.explain(err, h)
		}
		err = d.claim(p)
		var lost *device.ClaimedError
		if !errors.As(err, &lost) {
			return p, err
		}
		if _, twice := d.taken[lost.Address]; twice {
			return nil, err
		}
		d.taken[lost.Address] = "is held by " + lost.Holder
	}
}

// bind hands the planned functions to this user where they are not yet, as root: each is
// written down, and given back with the cluster's end.
func (c *Cluster) bind(ctx context.Context, p *plan.Plan) error {
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			f, err := c.devices.host.Find(v.Address)
			if err != nil {
				return err
			}
			if f.VFIO != "" {
				continue // handed over already, and to stay so
			}
			if _, err := c.journal.Record(device.Bound(v.Address)); err != nil {
				return err
			}
			if err := c.devices.host.Bind(ctx, v.Address, os.Getuid(), os.Getgid()); err != nil {
				return err
			}
		}
	}
	return nil
}

// functions tells a VM which functions it has. address is given the numbers of devices in
// the cluster, counted from 0.
func functions(h *topology.Host, s *spec.Cluster, p *plan.Plan, vm int) ([]guest.Function, error) {
	subnet, err := netip.ParsePrefix(s.Network.DeviceSubnet)
	if err != nil {
		return nil, fmt.Errorf("network.deviceSubnet: %w", err)
	}
	addr := subnet.Masked().Addr()
	var list []guest.Function
	for i := 0; i <= vm; i++ {
		for _, d := range p.VMs[i].Devices {
			addr = addr.Next()
			if i < vm {
				continue
			}
			if !subnet.Contains(addr) {
				return nil, fmt.Errorf("network.deviceSubnet: %s has too few addresses", subnet)
			}
			f := h.Device(d.Address)
			if f == nil {
				return nil, fmt.Errorf("device %s has gone", d.Address)
			}
			g := guest.Function{Vendor: f.VendorID, Device: f.DeviceID}
			switch {
			case f.Class>>8 == 0x0200:
				g.Net, g.RDMA = true, f.VendorID == device.Mellanox
			case f.Class>>8 == 0x0207 || f.Class>>8 == 0x0c06:
				g.RDMA = true
			}
			if g.Net {
				g.Address = netip.PrefixFrom(addr, subnet.Bits())
			}
			list = append(list, g)
		}
	}
	return list, nil
}

// withDrivers opens the image anew with the drivers of the planned functions.
func (p *prepared) withDrivers(s *spec.Cluster, h *device.Host, notice func(string)) error {
	var aliases []string
	for i := range p.plan.VMs {
		for _, d := range p.plan.VMs[i].Devices {
			aliases = append(aliases, h.Modalias(d.Address))
		}
	}
	if len(aliases) == 0 {
		return nil
	}
	img, err := image.Open(image.Request{Kernel: p.kernel, Devdax: wantsDevdax(s), Modules: rdmaModules(s), Aliases: aliases, Notice: notice})
	if err != nil {
		return err
	}
	p.image.Close()
	p.image = img
	return nil
}

// lockedSlack is what a VM with devices locks besides its memory and region, in bytes: ROMs,
// video memory and the like.
const lockedSlack = 64 << 20

// checkLocked says when this process may not lock the memory of a VM with devices: VFIO pins
// all of it, and counts it against the limit of each QEMU (RLIMIT_MEMLOCK; kernel,
// drivers/vfio/vfio_iommu_type1.c). A soft limit that is too low is raised.
func checkLocked(p *plan.Plan) error {
	need, all, who := lockedBytes(p)
	if need == 0 || mayLockAll() {
		return nil
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return err
	}
	switch cur := lockedLimit(l, need); {
	case cur == l.Cur && cur >= need:
		return nil
	case cur >= need:
		l.Cur = cur
		return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
	return fmt.Errorf("the limit on locked memory is %s, and VFIO locks all memory of a VM with devices: %s for %s, %s for all VMs; raise it (in /etc/security/limits.d: * hard memlock unlimited; LimitMEMLOCK=infinity for a service such as slurmd) and log in again",
		spec.Size(l.Max), spec.Size(need), who, spec.Size(all))
}

// lockedBytes gives what VFIO locks: of the VM that has most, called who, and of all.
func lockedBytes(p *plan.Plan) (need, all uint64, who string) {
	for i := range p.VMs {
		v := &p.VMs[i]
		if len(v.Devices) == 0 {
			continue
		}
		n := v.MemoryBytes + lockedSlack
		if p.Region != nil {
			n += p.Region.SizeBytes
		}
		all += n
		if n > need {
			need, who = n, v.Name
		}
	}
	return need, all, who
}

// lockedLimit gives the soft limit with which need bytes can be locked, or the one that is
// there when the hard limit allows no more.
func lockedLimit(l unix.Rlimit, need uint64) uint64 {
	if l.Cur < need && l.Max >= need {
		return l.Max
	}
	return l.Cur
}

// mayLockAll tells whether limits on locked memory do not bind this process: CAP_IPC_LOCK,
// capability 14 (capabilities(7)), as root has it.
func mayLockAll() bool {
	const capIPCLock = 14
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[0].Effective&(1<<capIPCLock) != 0
}
