package verify

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/plan"
	"nearmetal/internal/words"
	"nearmetal/test/golden"
)

const mib = 1 << 20

// twoNodes returns the plan of the VM from which the two-nodes files were captured.
func twoNodes() (*plan.VM, *plan.Region) {
	return &plan.VM{Name: "vm0", VCPUs: 2, Sockets: 2, Dies: 1, Cores: 1, Threads: 1, MemoryBytes: 512 * mib,
			Nodes: []plan.Node{
				{ID: 0, VCPUs: []int{0}, MemoryBytes: 256 * mib, HostNodes: []int{0}, Distances: []int{10, 11}},
				{ID: 1, VCPUs: []int{1}, MemoryBytes: 256 * mib, HostNodes: []int{0}, Distances: []int{11, 10}},
			},
			Pins: [][]int{{0}, {1}}, L3: [][]int{{0, 1}},
		},
		&plan.Region{SizeBytes: 16 * mib, Backing: "shm", Device: "ivshmem", HostNode: -1}
}

func answer(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/two-nodes.answer")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// says returns a Run that answers with text.
func says(text string, err error) Run {
	return func(_ context.Context, _ []string, w io.Writer) error {
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return err
	}
}

func TestGuest(t *testing.T) {
	p, region := twoNodes()
	g := AskGuest(context.Background(), "vm0", says(answer(t), nil))
	golden.Check(t, "testdata/two-nodes.guest", table(CompareGuest(p, region, g)))
}

// TestGuestDiffers changes a guest's answer, or the plan, and expects the row that reports it.
func TestGuestDiffers(t *testing.T) {
	for _, c := range []struct {
		name, from, to string // in the answer
		plan           func(*plan.VM, *plan.Region)
		want           string
	}{
		{"a CPU less", "online 0-1", "online 0", nil, "vCPUs of node 1 in the guest: planned 1, found none"},
		{"CPUs exchanged", "0\n1\n0\n1\n", "0\n1\n1\n0\n", nil, "vCPUs of node 0 in the guest: planned 0, found 1"},
		{"threads of a core", "0\n1\n0\n1\n", "0-1\n0-1\n0\n1\n", nil, "topology in the guest: planned 2 sockets x 1 die x 1 core x 1 thread, found "},
		{"one socket", "cpu1/topology/physical_package_id 1", "cpu1/topology/physical_package_id 0", nil, "topology in the guest: planned 2 sockets x 1 die x 1 core x 1 thread, found 1 socket x 2 dies x 1 core x 1 thread"},
		{"distance", "distance 10 11", "distance 10 21", nil, "distances of node 0 in the guest: planned 10 11, found 10 21"},
		{"distances left to QEMU", "", "", func(p *plan.VM, _ *plan.Region) { p.Nodes[0].Distances = nil }, "distances of node 0 in the guest: planned 10 20, found 10 11"},
		{"memory too small", "MemTotal:         257572 kB", "MemTotal:         217572 kB", nil, "memory of node 1 in the guest: planned 256 MiB less the kernel's share, found 212.5 MiB"},
		{"memory too large", "MemTotal:         257572 kB", "MemTotal:         267572 kB", nil, "memory of node 1 in the guest"},
		{"node without memory", "Node 1 MemTotal:         257572 kB", "", nil, "memory of node 1 in the guest"},
		{"more nodes", "", "", func(p *plan.VM, _ *plan.Region) { p.Nodes = nil }, "nodes in the guest: planned 0, found 0-1"},
		{"another region", "", "", func(_ *plan.VM, r *plan.Region) { r.SizeBytes *= 2 }, "region in the guest: planned ivshmem, 32 MiB, found ivshmem, 16 MiB"},
		{"no region", "device 0x1110", "device 0x1111", nil, "region in the guest: planned ivshmem, 16 MiB, found no ivshmem device"},
		{"no dax", "", "", func(_ *plan.VM, r *plan.Region) { r.Device = "devdax" }, "region in the guest: planned devdax, 16 MiB, found no dax device"},
		{"no expander", "", "", func(p *plan.VM, _ *plan.Region) {
			p.Devices = []plan.Device{{Node: 1}}
		}, "devices on node 1 in the guest: planned 1, found 0"},
	} {
		p, region := twoNodes()
		if c.plan != nil {
			c.plan(p, region)
		}
		text := answer(t)
		if !strings.Contains(text, c.from) {
			t.Fatalf("%s: the answer has no %q", c.name, c.from)
		}
		g := AskGuest(context.Background(), "vm0", says(strings.Replace(text, c.from, c.to, 1), nil))
		if d := differing(CompareGuest(p, region, g)); !strings.Contains(d, "differs vm0: "+c.want) {
			t.Errorf("%s: %q is missing in\n%s%s", c.name, c.want, d, g.Error)
		}
	}
}

// A guest that sees the planned dies gets ok, and one that sees none a note.
func TestGuestDies(t *testing.T) {
	for _, c := range []struct {
		name     string
		replaced []string // in the answer
		dies     Status
		caches   Status
	}{
		{"shown", nil, OK, OK},
		{"not shown", []string{"cpu1/topology/die_id 1", "cpu1/topology/die_id 0"}, Note, Note},
		{"otherwise", []string{"0\n1\n0\n1\n", "0-1\n0-1\n0\n1\n"}, Differs, OK},
	} {
		p, region := twoNodes()
		p.Sockets, p.Dies, p.L3 = 1, 2, [][]int{{0}, {1}}
		text := strings.Replace(answer(t), "cpu1/topology/physical_package_id 1", "cpu1/topology/physical_package_id 0", 1)
		text = strings.NewReplacer(c.replaced...).Replace(text)
		g := AskGuest(context.Background(), "vm0", says(text, nil))
		if c.caches == Note {
			g.Host.CPUs[1].L3 = g.Host.CPUs[0].L3 // both on one cache
		}
		rows := CompareGuest(p, region, g)
		for what, want := range map[string]Status{"topology in the guest": c.dies, "last-level caches in the guest": c.caches} {
			k := slices.IndexFunc(rows, func(r Row) bool { return r.What == what })
			if k < 0 || rows[k].Status != want {
				t.Errorf("%s: %s: want %s in\n%s", c.name, what, want, table(rows))
			}
		}
	}
}

// A device below an expander, and a dax device, in the format of sysfs.
func TestGuestDevices(t *testing.T) {
	p, region := twoNodes()
	p.Devices = []plan.Device{{Address: "0000:41:10.0", Node: 1}}
	region.Device = "devdax"
	more := "l sys/bus/pci/devices/0000:c0:00.0 /sys/devices/pci0000:c0/0000:c0:00.0\n" +
		"f sys/devices/pci0000:c0/0000:c0:00.0/numa_node 1\n" +
		"l sys/bus/pci/devices/0000:c1:00.0 /sys/devices/pci0000:c0/0000:c0:00.0/0000:c1:00.0\n" +
		"f sys/devices/pci0000:c0/0000:c0:00.0/0000:c1:00.0/numa_node 1\n" +
		"f sys/bus/dax/devices/dax0.0/size 14680064\nend\n"
	g := AskGuest(context.Background(), "vm0", says(strings.Replace(answer(t), "end\n", more, 1), nil))
	if d := differing(CompareGuest(p, region, g)); d != "" {
		t.Error(d)
	}
	g.Host.Device("0000:c1:00.0").Node = 0
	if d := differing(CompareGuest(p, region, g)); !strings.Contains(d, "devices on node 0 in the guest: planned 0, found 1") {
		t.Error(d)
	}
}

// The kernel uses more of the first node, and of a large VM's nodes.
func TestKernelShare(t *testing.T) {
	for _, c := range []struct {
		first, bounce bool
		bytes         uint64
		mib           uint64
	}{{true, false, 256 * mib, 80}, {false, false, 256 * mib, 16}, {false, true, 256 * mib, 80}, {true, true, 512 * mib, 152},
		{true, true, 64 << 30, 2184}, {false, false, 64 << 30, 2056}} {
		if got := kernelShare(c.first, c.bounce, c.bytes); got != c.mib*mib {
			t.Errorf("%+v: %s, want %d MiB", c, words.Bytes(got), c.mib)
		}
	}
}

// A guest may send anything: its answer becomes a row, and nothing worse.
func TestHostileGuests(t *testing.T) {
	p, region := twoNodes()
	for _, c := range []struct {
		name string
		run  Run
		want string
	}{
		{"nothing", says("", nil), "its answer is cut short"},
		{"cut short", says(strings.TrimSuffix(answer(t), "end\n"), nil), "its answer is cut short"},
		{"a failed shell", says("", errors.New("/bin/sh: no such program")), "/bin/sh: no such program"},
		{"no end of it", says(strings.Repeat("f sys/x y\n", 4<<20), nil), "it sent more than 16777216 bytes"},
		{"a long line", says("f sys/x "+strings.Repeat("y", 2<<20)+"\nend\n", nil), "too long"},
		{"a path upwards", says("f sys/../etc/passwd x\nend\n", nil), "it sent a strange line"},
		{"another path", says("f etc/passwd x\nend\n", nil), "it sent a strange line"},
		{"an absolute path", says("f /sys/x x\nend\n", nil), "it sent a strange line"},
		{"a link out", says("l sys/x /etc/passwd\nend\n", nil), "it sent a strange line"},
		{"control characters", says("f sys/\x1b[2J x\nend\n", nil), "it sent a strange line"},
		{"lists without end", says("c lists 99999999999999999999\nend\n", nil), "lists of CPUs"},
		{"more lists than lines", says("c lists 3\nsys/a\nsys/b\nend\n", nil), "it sent a strange path"},
		{"lists elsewhere", says("c lists 1\netc/passwd\nx\nend\n", nil), "it sent a strange path"},
		{"no CPUs", says("end\n", nil), "cannot be read"},
		{"a node too many", says(strings.Replace(answer(t), "node/online 0-1", "node/online 0-99999999", 1), nil), "above this program's maximum"},
	} {
		g := AskGuest(context.Background(), "vm0", c.run)
		rows := CompareGuest(p, region, g)
		if len(rows) != 1 || rows[0].Status != Note || !strings.Contains(rows[0].Found, c.want) {
			t.Errorf("%s: %q is missing in %v", c.name, c.want, rows)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("given up"))
	if g := AskGuest(ctx, "vm0", says("", nil)); g.Error != "given up" {
		t.Errorf("a context that ended: %+v", g)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer(f))
	f.Add("c lists 1\nsys/a\n1\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, region := twoNodes()
		g, err := readAnswer([]byte(text), "vm0")
		if err == nil {
			CompareGuest(p, region, g)
		}
	})
}

// The kernel's bounce buffers are at the top of the memory below 4 GiB.
func TestBounceNode(t *testing.T) {
	nodes := func(gib ...uint64) (list []plan.Node) {
		for i, n := range gib {
			list = append(list, plan.Node{ID: i, MemoryBytes: n << 28}) // quarters of a GiB
		}
		return list
	}
	devdax := &plan.Region{Device: "devdax"}
	for _, c := range []struct {
		nodes  []plan.Node
		region *plan.Region
		want   int
	}{
		{nodes(1, 1), nil, -1},
		{nodes(1, 1), &plan.Region{Device: "ivshmem"}, -1},
		{nodes(1, 1), devdax, 1},    // as seen: Linux 6.1 in a VM of two nodes with 256 MiB each
		{nodes(2), devdax, 0},       // one node
		{nodes(1, 1, 0), devdax, 1}, // the last node has no memory
		{nodes(8, 8), nil, 0},       // 2 GiB each: the second is above 4 GiB
		{nodes(4, 4, 4, 4), nil, 1},
		{nodes(6, 4), devdax, 1}, // 2.5 GiB, all of it below 4 GiB
	} {
		p := &plan.VM{Nodes: c.nodes}
		for _, n := range c.nodes {
			p.MemoryBytes += n.MemoryBytes
		}
		if got := bounceNode(p, c.nodes, c.region); got != c.want {
			t.Errorf("%+v: node %d, want %d", c.nodes, got, c.want)
		}
	}
}

// A region that a backend promises in addition to the plan is looked up only in the guest, and the row names its path.
func TestPromise(t *testing.T) {
	p, _ := twoNodes()
	text := answer(t)
	check := func(text string, size uint64) string {
		v := VM{Plan: *p, Run: says(text, nil), Region: size, RegionLook: "look there"}
		return differing(Check(context.Background(), "demo", nil, []VM{v}).Rows)
	}
	if d := check(text, 16<<20); strings.Contains(d, "region") {
		t.Error(d)
	}
	for size, want := range map[uint64]string{16 << 20: "planned ivshmem, 16 MiB, found no ivshmem device: look there", 0: ""} {
		d := check(strings.Replace(text, "device 0x1110", "device 0x1111", 1), size)
		if !strings.Contains(d, want) || want == "" && strings.Contains(d, "region") {
			t.Errorf("%d bytes: %q is missing in\n%s", size, want, d)
		}
	}
}

// A slow guest does not time out while it still sends output.
func TestSlowGuest(t *testing.T) {
	defer func(quiet, most time.Duration) { guestQuiet, guestMost = quiet, most }(guestQuiet, guestMost)
	guestQuiet = time.Second
	text := answer(t)
	slow := func(ctx context.Context, _ []string, w io.Writer) error {
		for n := range 5 {
			from, to := len(text)*n/5, len(text)*(n+1)/5
			if _, err := io.WriteString(w, text[from:to]); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(guestQuiet / 4):
			}
		}
		return nil
	}
	if g := AskGuest(context.Background(), "vm0", slow); g.Error != "" {
		t.Error(g.Error)
	}
	silent := func(ctx context.Context, _ []string, w io.Writer) error {
		io.WriteString(w, "f")
		<-ctx.Done()
		return ctx.Err()
	}
	guestQuiet = 10 * time.Millisecond
	if g := AskGuest(context.Background(), "vm0", silent); g.Error != "it sent nothing for 10ms" {
		t.Error(g.Error)
	}
	drips := func(ctx context.Context, _ []string, w io.Writer) error {
		for ctx.Err() == nil {
			io.WriteString(w, "f")
		}
		return ctx.Err()
	}
	guestQuiet, guestMost = time.Minute, 10*time.Millisecond
	if g := AskGuest(context.Background(), "vm0", drips); g.Error != "no whole answer within 10ms" {
		t.Error(g.Error)
	}
}
