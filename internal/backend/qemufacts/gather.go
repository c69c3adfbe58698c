// Package qemufacts reads the facts of a running QEMU, regardless of its starter, from its monitor and from /proc. It
// is shared by backends whose VMs are QEMU processes of this host.
package qemufacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
)

// Monitor is QEMU's monitor: a command that QEMU rejects returns a *Refused.
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// Refused is QEMU's answer to a command that failed.
type Refused struct {
	Command string
	Class   string
	Desc    string
}

func (e *Refused) Error() string { return fmt.Sprintf("QEMU: %s: %s", e.Command, e.Desc) }

// QEMU is a running QEMU to be read.
type QEMU struct {
	Plan *plan.VM // what to look for
	PID  int
	QMP  Monitor
}

// facts are the facts of one VM while they are gathered.
type facts struct{ *backend.Facts }

// Gather reads the facts of a VM; region is its plan's, nil for none. It changes nothing.
func Gather(ctx context.Context, v QEMU, region *plan.Region) *backend.Facts {
	f := facts{&backend.Facts{VM: v.Plan.Name, By: "QEMU", Unread: map[backend.Part]string{}}}
	unread := func(p backend.Part, err error) {
		if err != nil {
			f.Unread[p] = err.Error()
		}
	}
	own, err := affinity(os.Getpid(), os.Getpid())
	unread(backend.PartThreads, err)
	f.Own = own
	threads, err := f.gatherCPUs(ctx, v)
	unread(backend.PartCPUs, err)
	if err == nil {
		unread(backend.PartThreads, f.gatherThreads(v.PID, threads))
	} else {
		unread(backend.PartThreads, errors.New("which threads are vCPUs is not known"))
	}
	maps, err := readMappings(v.PID)
	if err == nil {
		unread(backend.PartMemory, f.gatherMemory(ctx, v, maps))
		if region != nil {
			unread(backend.PartRegion, f.gatherRegion(v.PID, region, maps))
		}
	} else {
		unread(backend.PartMemory, err)
		unread(backend.PartRegion, err)
	}
	if len(v.Plan.Devices) > 0 {
		f.Devices, err = devicesOf(ctx, v.QMP, "vfio-pci")
		unread(backend.PartDevices, err)
	}
	if len(f.Unread) == 0 {
		f.Unread = nil
	} else if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", v.PID)); errors.Is(err, os.ErrNotExist) {
		f.Ended = true // ended in the meantime; a process that waits to be reaped has no program either
	}
	return f.Facts
}

// maxVCPUs bounds the number of vCPUs that QEMU may report.
const maxVCPUs = 1 << 14

// gatherCPUs queries the vCPUs; it returns their threads.
func (f facts) gatherCPUs(ctx context.Context, v QEMU) (map[int]bool, error) {
	var list []struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
		Props  struct {
			Node   *int `json:"node-id"`
			Socket int  `json:"socket-id"`
			Die    int  `json:"die-id"`
			Core   int  `json:"core-id"`
			Thread int  `json:"thread-id"`
		} `json:"props"`
	}
	if err := v.QMP.Execute(ctx, "query-cpus-fast", nil, &list); err != nil {
		return nil, err
	}
	if len(list) > maxVCPUs {
		return nil, fmt.Errorf("QEMU claims to have %d vCPUs", len(list))
	}
	ids, err := Threads(v.PID)
	if err != nil {
		return nil, err
	}
	threads := map[int]bool{}
	for _, c := range list {
		// QEMU is not trusted to name other processes' threads.
		id, ok := ids[c.Thread]
		if !ok {
			return nil, fmt.Errorf("vCPU %d: %d is not a thread of QEMU's", c.Index, c.Thread)
		}
		cpus, err := affinity(v.PID, id)
		if err != nil {
			return nil, err
		}
		node := -1
		if c.Props.Node != nil {
			node = *c.Props.Node
		}
		threads[id] = true
		p := c.Props
		f.VCPUs = append(f.VCPUs, backend.VCPU{Index: c.Index, CPUs: cpus,
			Socket: p.Socket, Die: p.Die, Core: p.Core, Thread: p.Thread, Node: node})
	}
	slices.SortFunc(f.VCPUs, func(a, b backend.VCPU) int { return a.Index - b.Index })
	return threads, nil
}

// gatherThreads reads the threads that are not vCPUs. Workers come and go.
func (f facts) gatherThreads(pid int, vcpus map[int]bool) error {
	ids, err := threadIDs(pid)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if vcpus[id] {
			continue
		}
		cpus, err := affinity(pid, id)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		f.Threads = append(f.Threads, backend.Thread{Name: threadName(pid, id), CPUs: cpus})
	}
	return nil
}

// gatherMemory finds the memory of each of the plan's nodes in QEMU's address space.
func (f facts) gatherMemory(ctx context.Context, v QEMU, maps []vma) error {
	var backends []struct {
		ID   string `json:"id"`
		Size uint64 `json:"size"`
	}
	if err := v.QMP.Execute(ctx, "query-memdev", nil, &backends); err != nil {
		return err
	}
	size := map[string]uint64{}
	for _, b := range backends {
		size[b.ID] = b.Size
	}
	nodes := v.Plan.Nodes
	if len(nodes) == 0 {
		nodes = []plan.Node{{ID: -1, MemoryBytes: v.Plan.MemoryBytes}}
	}
	var total, offset uint64
	for _, n := range nodes {
		total += n.MemoryBytes
	}
	for _, n := range nodes {
		if n.MemoryBytes == 0 {
			continue
		}
		b := backend.Block{ID: "pc.ram", Node: n.ID, Bytes: n.MemoryBytes}
		if n.ID >= 0 {
			b.ID = "mem" + strconv.Itoa(n.ID)
			if ours, libvirts := b.ID, "ram-node"+strconv.Itoa(n.ID); size[ours] == 0 && size[libvirts] > 0 {
				b.ID = libvirts
			}
			b.Bytes = size[b.ID]
		}
		if b.Bytes > 0 {
			address, err := hostAddress(ctx, v.QMP, b.ID, offset, total)
			if err != nil {
				return err
			}
			b.Mapping = cover(maps, address, b.Bytes)
		}
		offset += n.MemoryBytes
		f.Blocks = append(f.Blocks, b)
	}
	return nil
}

// Where q35 maps memory (hw/i386/pc_q35.c): below 4 GiB up to 2 GiB if the VM has 2.75 GiB or more, else all of it;
// the rest from 4 GiB on, or on AMD from 1 TiB on if it would touch the hole that HyperTransport has below.
const (
	lowMemory     = 2 << 30
	lowMemoryFrom = 0xb0000000
)

// hostAddress queries the address in QEMU's address space of the block that begins at an offset in the VM's memory of
// total bytes. QEMU reports the block at an address, so that a wrong guess about the map is detected.
func hostAddress(ctx context.Context, q Monitor, block string, offset, total uint64) (uint64, error) {
	guesses := []uint64{offset}
	if total >= lowMemoryFrom && offset >= lowMemory {
		guesses = []uint64{offset - lowMemory + 4<<30, offset - lowMemory + 1<<40}
	}
	found := ""
	for _, at := range guesses {
		var text string
		// No other command than this one for people returns it.
		err := q.Execute(ctx, "human-monitor-command", map[string]string{"command-line": fmt.Sprintf("gpa2hva 0x%x", at)}, &text)
		if err != nil {
			return 0, err
		}
		name, address, ok := parseHostAddress(text)
		if ok && name == block {
			return address, nil
		}
		found = name
	}
	return 0, fmt.Errorf("%s is not where it was looked for in the guest's memory: there is %.40q", block, found)
}

// parseHostAddress parses "Host virtual address for 0x0 (mem0) is 0x7f12a5c00000".
func parseHostAddress(text string) (block string, address uint64, ok bool) {
	rest, ok := strings.CutPrefix(text, "Host virtual address for 0x")
	if !ok {
		return "", 0, false
	}
	_, rest, _ = strings.Cut(rest, " (")
	block, rest, ok = strings.Cut(rest, ") is 0x")
	if !ok {
		return "", 0, false
	}
	address, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
	return block, address, err == nil
}

// gatherRegion finds the region's file: the one shared mapping of its size that is not memory of the VM itself.
func (f facts) gatherRegion(pid int, region *plan.Region, maps []vma) error {
	for i := range maps {
		v := &maps[i]
		if !v.shared || v.end-v.start != region.SizeBytes || v.inode == 0 || strings.HasPrefix(v.path, "/memfd:") {
			continue
		}
		f.Region = cover(maps[i:i+1], v.start, region.SizeBytes)
		f.Region.FileBytes = fileBytes(pid, v.inode, region.SizeBytes)
		return nil
	}
	return nil
}

// fileBytes returns the size of a process's open file with the inode; 0: none. If several files on different file
// systems have that inode, the one of the wanted size counts.
func fileBytes(pid int, inode, want uint64) uint64 {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var size uint64
	for _, e := range list {
		var st unix.Stat_t
		if unix.Stat(dir+"/"+e.Name(), &st) != nil || st.Ino != inode || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if size = uint64(st.Size); size == want {
			break
		}
	}
	return size
}

// devicesOf lists the devices of a type with the root port and the expander above each.
func devicesOf(ctx context.Context, q Monitor, kind string) ([]backend.Device, error) {
	var devices []backend.Device
	for _, dir := range []string{"/machine/peripheral", "/machine/peripheral-anon"} {
		var list []struct {
			Name string `json:"name"`
			Type string `json:"type"`
		}
		if err := q.Execute(ctx, "qom-list", map[string]string{"path": dir}, &list); err != nil {
			return nil, err
		}
		for _, e := range list {
			if e.Type != "child<"+kind+">" {
				continue
			}
			d, err := deviceAt(ctx, q, dir+"/"+e.Name)
			if err != nil {
				return nil, err
			}
			if len(devices) == maxDevices {
				return nil, fmt.Errorf("QEMU claims to have more than %d devices", maxDevices)
			}
			devices = append(devices, d)
		}
	}
	return devices, nil
}

const maxDevices = 4096

func deviceAt(ctx context.Context, q Monitor, path string) (backend.Device, error) {
	d := backend.Device{Node: -1, Bus: -1}
	get := func(path, property string, to any) error {
		return q.Execute(ctx, "qom-get", map[string]string{"path": path, "property": property}, to)
	}
	var refused *Refused
	if err := get(path, "host", &d.Host); err != nil && !errors.As(err, &refused) {
		return d, err
	}
	var bus string
	if err := get(path, "parent_bus", &bus); err != nil {
		return d, err
	}
	d.Port = bus[strings.LastIndexByte(bus, '/')+1:] // buses are named after their device
	if err := get("/machine/peripheral/"+d.Port, "parent_bus", &bus); errors.As(err, &refused) {
		return d, nil // not a root port of the plan: a bus of the machine itself
	} else if err != nil {
		return d, err
	}
	above := "/machine/peripheral/" + bus[strings.LastIndexByte(bus, '/')+1:]
	if err := get(above, "bus_nr", &d.Bus); errors.As(err, &refused) {
		return d, nil // the port is on the machine's own root
	} else if err != nil {
		return d, err
	}
	return d, get(above, "numa_node", &d.Node)
}
