package cloud

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
	"nearmetal/internal/verify"
	"nearmetal/internal/words"
)

// rows collects the rows of a VM.
type rows struct {
	vm   string
	list []verify.Row
}

func (r *rows) add(ok bool, what, promised, found string) {
	s := verify.OK
	if !ok {
		s = verify.Differs
	}
	r.list = append(r.list, verify.Row{VM: r.vm, What: what, Planned: promised, Found: found, Status: s})
}

func (r *rows) note(what, promised, found string) {
	r.list = append(r.list, verify.Row{VM: r.vm, What: what, Planned: promised, Found: found, Status: verify.Note})
}

// Verify compares a flavor's promises with what this VM sees; root is a captured tree, or "" for this VM. Properties
// that a guest cannot see are notes.
func Verify(ctx context.Context, root string, f *openstack.Flavor, i *Instance) (*verify.Report, error) {
	name := i.Name
	if name == "" {
		name = "this VM"
	}
	vm, err := promised(f, name)
	if err != nil {
		return nil, err
	}
	reg, err := region(f)
	if err != nil {
		return nil, err
	}
	pci, err := functions(f)
	if err != nil {
		return nil, err
	}
	if root == "" {
		root = "/"
	}
	h, err := topology.Read(root)
	if err != nil {
		return nil, err
	}
	see, err := look(ctx, root)
	if err != nil {
		return nil, err
	}
	r := &rows{vm: name}
	novas := f.Specs["hw:numa_nodes"] != "" || i.Cloud == "" || i.Cloud == "openstack"
	if i.Flavor != "" {
		r.add(i.Flavor == f.Name, "flavor", f.Name, i.Flavor)
	} else {
		r.note("flavor", f.Name, "the metadata cannot be read, or does not say")
	}
	r.emulation(see)
	r.shape(f, h)
	for _, row := range verify.CompareGuest(&vm, reg, &verify.Guest{Host: h}) {
		// Nova guarantees no distances and no caches. The shape has rows of its own, and the flavor's functions are
		// counted below.
		if what := row.What; strings.Contains(what, "nodes in") || strings.Contains(what, "of node") && !strings.Contains(what, "distances") || strings.Contains(what, "region") {
			row.What = strings.TrimSuffix(what, " in the guest")
			if row.Status == verify.Differs && !novas && !strings.Contains(what, "region") {
				// Nova makes one node if the flavor does not state a number; others' default is not known.
				row.Status = verify.Note
			}
			r.list = append(r.list, row)
		}
	}
	r.cpus(f, see)
	r.pages(f, see)
	r.clock(see)
	r.devices(pci, h, see)
	if reg != nil {
		r.mapped(see)
	}
	if f.Specs["hw:viommu_model"] != "" {
		n := len(entries(root, "/sys/class/iommu"))
		r.add(n > 0, "IOMMU", f.Specs["hw:viommu_model"], words.Count(n, "unit", "units"))
	}
	return &verify.Report{Cluster: name, Guest: true, Rows: r.list}, nil
}

// look runs the checks for the inside of a VM.
func look(ctx context.Context, root string) (map[string]check.Result, error) {
	c, err := check.Run(ctx, check.Options{Root: root, Profile: check.Guest, Only: []string{"vm"}})
	if err != nil {
		return nil, err
	}
	m := map[string]check.Result{}
	for _, row := range c.Rows {
		m[row.ID] = row
	}
	return m, nil
}

func entries(root, dir string) []os.DirEntry {
	list, _ := os.ReadDir(filepath.Join(root, dir)) // one that does not exist has none
	return list
}

// emulation warns if the other rows are meaningless for performance.
func (r *rows) emulation(see map[string]check.Result) {
	v := see["vm.accel"]
	switch v.Status {
	case check.OK:
		r.add(true, "instructions", "on the CPU", v.Found)
	case check.NotApplicable:
		r.note("instructions", "on the CPU", "this is not a VM")
	default:
		r.note("instructions", "on the CPU", v.Found)
	}
}

// shape compares vCPUs, sockets, cores and threads. Values that a flavor leaves open are notes.
func (r *rows) shape(f *openstack.Flavor, h *topology.Host) {
	var online []topology.CPU
	for _, c := range h.CPUs {
		if c.Online {
			online = append(online, c)
		}
	}
	r.add(len(online) == f.VCPUs, "vCPUs", fmt.Sprint(f.VCPUs), fmt.Sprint(len(online)))
	count := func(of func(*topology.CPU) int) int {
		m := map[int]bool{}
		for i := range online {
			m[of(&online[i])] = true
		}
		return max(len(m), 1)
	}
	sockets := count(func(c *topology.CPU) int { return c.Package })
	cores := count(func(c *topology.CPU) int { return c.Core })
	for _, v := range []struct {
		what, key string
		found     int
	}{
		{"sockets", "hw:cpu_sockets", sockets},
		{"cores of a socket", "hw:cpu_cores", cores / sockets},
		{"threads of a core", "hw:cpu_threads", len(online) / cores},
	} {
		if want := f.Specs[v.key]; want != "" {
			r.add(want == fmt.Sprint(v.found), v.what, word(want), fmt.Sprint(v.found))
		} else {
			r.note(v.what, "the flavor leaves it open", fmt.Sprint(v.found))
		}
	}
}

// cpus compares the policy of CPUs with the time stolen by others.
func (r *rows) cpus(f *openstack.Flavor, see map[string]check.Result) {
	steal := see["vm.steal"]
	switch {
	case f.Specs["hw:cpu_policy"] == "dedicated" && steal.Status == check.OK:
		r.add(true, "CPUs of its own", "dedicated", steal.Found+" of the time stolen")
	case f.Specs["hw:cpu_policy"] == "dedicated" && steal.Status == check.Warn:
		r.add(false, "CPUs of its own", "dedicated", steal.Found+" of the time stolen")
	case f.Specs["hw:cpu_policy"] == "dedicated":
		r.note("CPUs of its own", "dedicated", steal.Found)
	default:
		r.note("CPUs of its own", "not promised: they float, and others may have them", steal.Found+" of the time stolen")
	}
}

func (r *rows) pages(f *openstack.Flavor, see map[string]check.Result) {
	found := "a guest cannot see the host's pages; its own kernel: " + see["vm.nested-paging"].Found
	if page := f.Specs["hw:mem_page_size"]; page != "" {
		r.note("huge pages of the host", word(page), found)
		return
	}
	r.note("huge pages of the host", "not promised", found)
}

func (r *rows) clock(see map[string]check.Result) {
	v := see["vm.tsc"]
	if v.Status == check.Unknown {
		r.note("clock", "read without an exit", v.Found)
		return
	}
	r.add(v.Status == check.OK, "clock", "read without an exit", v.Found)
}

// devices counts functions that are not a hypervisor's own devices.
func (r *rows) devices(promised int, h *topology.Host, see map[string]check.Result) {
	var have []string
	for i := range h.Devices {
		d := &h.Devices[i]
		if class := d.Class >> 16; d.VendorID != virtioVendor && (class == 0x02 || d.Class>>8 == 0x0207 || class == 0x0c && len(d.RDMA) > 0) && !slices.Contains(emulatedCards, d.DeviceID) {
			have = append(have, d.Address)
		}
	}
	found := "none"
	if len(have) > 0 {
		found = strings.Join(have, ", ")
	}
	switch {
	case promised > 0:
		r.add(len(have) >= promised, "cards passed through", words.Count(promised, "function", "functions"), found)
	case len(have) > 0:
		r.note("cards passed through", "by ports, which a flavor does not name", found)
	default:
		r.note("cards passed through", "not promised; ports may", found)
	}
	if v := see["vm.vf"]; v.Status != check.NotApplicable {
		r.add(v.Status == check.OK, "driver and link of cards", "each has both", v.Found)
	}
}

const virtioVendor = 0x1af4

// emulatedCards are network cards that QEMU emulates: e1000, e1000e, rtl8139.
var emulatedCards = []int{0x100e, 0x10d3, 0x8139}

func (r *rows) mapped(see map[string]check.Result) {
	switch v := see["vm.region"]; v.Status {
	case check.OK:
		r.add(true, "region's mapping", "cached", v.Found)
	case check.Fail:
		r.add(false, "region's mapping", "cached", v.Found)
	default:
		r.note("region's mapping", "cached", v.Found)
	}
}
