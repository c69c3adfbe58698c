package qemufacts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
	"nearmetal/internal/verify"
)

// monitor is a QMP client over a QEMU's standard streams.
type monitor struct {
	in  io.Writer
	out *bufio.Scanner
}

func (m *monitor) Execute(_ context.Context, command string, args, result any) error {
	line, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
	if args == nil {
		line, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		return err
	}
	if _, err := m.in.Write(append(line, '\n')); err != nil {
		return err
	}
	for m.out.Scan() {
		var answer struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := json.Unmarshal(m.out.Bytes(), &answer); err != nil {
			return err
		}
		switch {
		case answer.Error != nil:
			return &Refused{Command: command, Desc: answer.Error.Desc}
		case answer.Return != nil && result != nil:
			return json.Unmarshal(answer.Return, result)
		case answer.Return != nil:
			return nil
		}
	}
	return errors.New("QEMU has ended")
}

// startQEMU starts a real QEMU (of PATH) that does not run its VM, with additional options.
func startQEMU(t *testing.T, file *os.File, args ...string) QEMU {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs QEMU")
	}
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.Command(path, append([]string{"-S", "-machine", "q35", "-accel", "tcg,tb-size=8", "-cpu", "max",
		"-nodefaults", "-display", "none", "-qmp", "stdio"}, args...)...)
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	m := &monitor{in, bufio.NewScanner(out)}
	if !m.out.Scan() {
		t.Fatal("QEMU did not start: ", said.String())
	}
	if err := m.Execute(context.Background(), "qmp_capabilities", nil, nil); err != nil {
		t.Fatal(err)
	}
	return QEMU{PID: cmd.Process.Pid, QMP: m}
}

// regionForTest returns a file without a name, like the region's.
func regionForTest(t *testing.T, size int64) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/shm", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "region")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// firstCPU returns a CPU that this process may use.
func firstCPU(t *testing.T) int {
	t.Helper()
	own, err := affinity(os.Getpid(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return own[0]
}

// differing returns the rows that are not ok.
func differing(rows []verify.Row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.Status != verify.OK {
			fmt.Fprintln(&b, r.Status, r)
		}
	}
	return b.String()
}

// TestRealQEMU reads the facts of a real QEMU: they match its options, and later changes are reported.
func TestRealQEMU(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	const mib = 1 << 20
	file := regionForTest(t, 4*mib)
	v := startQEMU(t, file, "-smp", "4,sockets=2,cores=1,threads=2", "-m", "128M",
		"-object", "memory-backend-ram,id=mem0,size=64M,host-nodes=0,policy=bind",
		"-numa", "node,nodeid=0,cpus=0-1,memdev=mem0",
		"-object", "memory-backend-memfd,id=mem1,size=64M,share=on,prealloc=on",
		"-numa", "node,nodeid=1,cpus=2-3,memdev=mem1",
		"-object", "memory-backend-file,id=region,mem-path=/proc/self/fd/3,size=4M,share=on,host-nodes=0,policy=bind,prealloc=on", "-device", "ivshmem-plain,memdev=region",
		"-device", "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=192,numa_node=1", "-device", "pcie-root-port,id=port0,bus=pxb1,chassis=1",
		"-device", "virtio-rng-pci,bus=port0",
		"-device", "pcie-root-port,id=port1,bus=pcie.0,chassis=2", "-device", "virtio-rng-pci,bus=port1,id=rng1",
		"-device", "virtio-rng-pci,bus=pcie.0")
	cpu := firstCPU(t)
	p := plan.VM{Name: "vm0", VCPUs: 4, Sockets: 2, Dies: 1, Cores: 1, Threads: 2, MemoryBytes: 128 * mib,
		Nodes: []plan.Node{
			{ID: 0, VCPUs: []int{0, 1}, MemoryBytes: 64 * mib, HostNodes: []int{0}},
			{ID: 1, VCPUs: []int{2, 3}, MemoryBytes: 64 * mib},
		},
		Pins: [][]int{{cpu}, {cpu}, {cpu}, {cpu}}, EmulatorCPUs: []int{cpu},
	}
	v.Plan = &p
	region := &plan.Region{SizeBytes: 4 * mib, Backing: "shm", Device: "ivshmem", HostNode: 0}
	threads, err := threadIDs(v.PID)
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, id := range threads {
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			t.Fatal(err)
		}
	}
	f := Gather(ctx, v, region)
	shared := f.Region.File
	if d := differing(verify.Compare(&p, region, f, shared)); d != "" {
		t.Error("as it was started:\n", d)
	}
	if m := f.Blocks[1].Mapping; m.Present() != 64*mib || !m.Shared || m.OnNode[0] == 0 {
		t.Errorf("node 1 was allocated at the start; found %+v", m)
	}
	// Inode numbers are the kernel's; the size shows that it is the right file.
	if f.Region.FileBytes != 4*mib || f.Region.OnNode[0] == 0 {
		t.Errorf("region: %+v", f.Region)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%02x:%02x %d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino); shared != want {
		t.Errorf("region's file %s, want %s", shared, want)
	}

	devices, err := devicesOf(ctx, v.QMP, "virtio-rng-pci")
	want := []backend.Device{{Port: "port1", Node: -1, Bus: -1}, {Port: "port0", Node: 1, Bus: 192}, {Port: "pcie.0", Node: -1, Bus: -1}}
	for _, d := range want {
		if !slices.Contains(devices, d) {
			t.Errorf("devices %+v (%v), want %+v", devices, err, want)
		}
	}

	// A different plan for the same facts, with only properties that a plan can also state for a machine with one
	// CPU.
	p.Pins = [][]int{{cpu}, {cpu + 1}, {cpu}, {cpu}}
	p.Nodes = slices.Clone(p.Nodes)
	p.Nodes[1].HostNodes = []int{1}
	got := differing(verify.Compare(&p, region, f, shared))
	for _, words := range []string{
		"vm0: CPUs of vCPU 1: planned " + strconv.Itoa(cpu+1),
		"vm0: policy of the memory of node 1: planned bind:1, found default",
		"vm0: pages of node 1: planned host node 1, found 64 MiB on host node 0",
	} {
		if !strings.Contains(got, words) {
			t.Errorf("%q is missing in\n%s", words, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 3 {
		t.Errorf("%d rows differ, want 3:\n%s", n, got)
	}
}

// TestRealQEMUWithoutNodes: QEMU has another number of nodes than the plan, or none.
func TestRealQEMUWithoutNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	v := startQEMU(t, regionForTest(t, 1<<20), "-smp", "1,maxcpus=2,sockets=2", "-m", "128M")
	v.Plan = &plan.VM{Name: "vm0", VCPUs: 1, Sockets: 1, Dies: 1, Cores: 1, Threads: 1, MemoryBytes: 128 << 20}
	if d := differing(verify.Compare(v.Plan, nil, Gather(ctx, v, nil), "")); d != "" {
		t.Error("as it was started:\n", d)
	}
	v.Plan.Nodes = []plan.Node{{ID: 0, VCPUs: []int{0}, MemoryBytes: 128 << 20}}
	d := differing(verify.Compare(v.Plan, nil, Gather(ctx, v, nil), ""))
	if !strings.Contains(d, "memory of node 0: planned 128 MiB, found none") {
		t.Error(d)
	}

	// A VM that ends while it is read is reported as such.
	if err := unix.Kill(v.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for v.QMP.Execute(ctx, "query-status", nil, nil) == nil {
	}
	d = differing(verify.Compare(v.Plan, nil, Gather(ctx, v, nil), ""))
	if d != "differs vm0: QEMU: planned runs, found has ended\n" {
		t.Error(d)
	}
}

func TestHostAddress(t *testing.T) {
	for text, want := range map[string]string{
		"Host virtual address for 0x0 (mem0) is 0x7f12a5c00000\r\n": "mem0",
		"Memory at address 0x100000000is not RAM\r\n":               "",
		"No memory is mapped at address 0x0":                        "",
		"Host virtual address for 0x0 (mem0) is 0x":                 "",
		"Host virtual address for 0x0 (mem0":                        "",
		"":                                                          "",
	} {
		block, at, ok := parseHostAddress(text)
		if ok != (want != "") || ok && (block != want || at != 0x7f12a5c00000) {
			t.Errorf("%q: %q %#x %v", text, block, at, ok)
		}
	}
}
