package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/sockpair"
)

// bootTimeout bounds a boot on a busy machine; on an idle one it lasts 2 s.
const bootTimeout = 4 * time.Minute

// needs skips a test outside of CI, and fails it in CI, if a requirement is missing on the machine.
func needs(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func testCaps(t *testing.T) Caps {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs QEMU")
	}
	path, err := Find("")
	needs(t, err)
	caps, err := Probe(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return caps
}

// testImage returns this machine's kernel with testdata/init.c as /init; or another distribution's, from its packages
// unpacked below NEARMETAL_TEST_ROOT (with depmod run there).
func testImage(t *testing.T, devdax bool) *image.Image {
	t.Helper()
	k, err := image.Finder{Root: os.Getenv("NEARMETAL_TEST_ROOT")}.Find("")
	needs(t, err)
	cc, err := exec.LookPath("gcc")
	needs(t, err)
	prog := filepath.Join(t.TempDir(), "init")
	if out, err := exec.Command(cc, "-O1", "-static", "-o", prog, "testdata/init.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	agent, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Open(image.Request{Kernel: k, Agent: agent, Devdax: devdax, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// rig starts VMs of one image.
type rig struct {
	t    *testing.T
	caps Caps
	img  *image.Image
	set  backend.Settings
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOf(t, testImage(t, false))
}

func rigOf(t *testing.T, img *image.Image) *rig {
	t.Helper()
	caps := testCaps(t)
	khz, _ := host.TSCKHz()
	return &rig{t, caps, img, backend.Settings{Accel: host.TCG, TSCKHz: khz, PVH: img.PVH()}}
}

func onePlan() plan.VM {
	return plan.VM{Name: "vm0", VCPUs: 1, Sockets: 1, Dies: 1, Cores: 1, Threads: 1, MemoryBytes: 256 * mib}
}

// start boots a VM and returns it with the test's end of its channel.
func (r *rig) start(vm plan.VM, f Files, o Options) (*VM, net.Conn) {
	r.t.Helper()
	m, err := Build(vm, r.set, r.caps)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.startMachine(m, f, o)
}

func (r *rig) startMachine(m *Machine, f Files, o Options) (*VM, net.Conn) {
	r.t.Helper()
	ours, theirs, err := sockpair.Conn("channel")
	if err != nil {
		r.t.Fatal(err)
	}
	initrd, err := r.img.WithConfig([]byte("name " + m.Name + "\n"))
	if err != nil {
		r.t.Fatal(err)
	}
	f.Kernel, f.Initrd, f.Channel = r.img.KernelFile(), initrd, theirs
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	v, err := Start(ctx, m, f, o)
	initrd.Close()
	theirs.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { v.Kill(); ours.Close() })
	return v, ours
}

// await waits for a line on the console.
func await(t *testing.T, v *VM, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if err := v.AwaitConsole(ctx, text); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(v.LastLines(30), "\n"))
	}
}

// line returns the output of the test's init after a mark.
func line(v *VM, mark string) string {
	for _, l := range v.LastLines(500) {
		if _, after, ok := strings.Cut(l, "TEST "+mark+" "); ok {
			return after
		}
	}
	return ""
}

func TestBoot(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	shared := filepath.Join(dir, "a,b") // a comma, which separates QEMU's options
	os.Mkdir(shared, 0o755)
	os.WriteFile(filepath.Join(shared, "hello"), []byte("over 9p\n"), 0o644)
	rw := filepath.Join(dir, "rw")
	os.Mkdir(rw, 0o755)
	r.set.Exports = []backend.Export{{Tag: "root", Path: shared, ReadOnly: true}, {Tag: "share0", Path: rw}}
	r.set.Links = []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:00:00:01"}}
	log := filepath.Join(dir, "console.log")
	v, port := r.start(onePlan(), Files{}, Options{ConsoleLog: log})
	await(t, v, "TEST up")
	t.Logf("init after %s s, ready after %s s, %v after the start", line(v, "init"), line(v, "ready"), time.Since(v.Started()))
	for mark, want := range map[string]string{
		"config":   "name vm0",
		"online":   "0",
		"shared":   "over 9p",
		"mac eth0": "52:54:00:00:00:01",
	} {
		if got := line(v, mark); got != want {
			t.Errorf("%s: %q, want %q", mark, got, want)
		}
	}
	if strings.Contains(strings.Join(v.LastLines(500), "\n"), "TEST module") {
		t.Errorf("a module did not load:\n%s", strings.Join(v.LastLines(500), "\n"))
	}
	echo(t, port)
	// A file that the VM writes belongs to the owner it sets, as far as QEMU's user is permitted to set it.
	var st unix.Stat_t
	owner := uint32(1234)
	if os.Geteuid() != 0 {
		owner = uint32(os.Geteuid())
	}
	if err := unix.Stat(filepath.Join(rw, "written"), &st); err != nil || st.Size != 10 || st.Uid != owner || st.Mode&0o777 != 0o640 {
		t.Errorf("the file that the VM wrote: %v, %d bytes of user %d, mode %o\n%s", err, st.Size, st.Uid, st.Mode, strings.Join(v.LastLines(10), "\n"))
	}
	r.img.Close() // removes the kernel's image from QEMU's memory
	use, err := MemoryUse(v.PID(), []uint64{256 * mib}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guest %d MiB, rest %d MiB", use.GuestBytes/mib, use.RestBytes/mib)
	if use.GuestBytes < 20*mib || use.GuestBytes > 257*mib || use.RestBytes > 120*mib {
		t.Errorf("memory: %+v", use)
	}
	checkConfined(t, v)
	if cpus, err := v.QMP().VCPUs(context.Background()); err != nil || len(cpus) != 1 || cpus[0].Thread == 0 {
		t.Errorf("vCPUs: %v, %v", cpus, err)
	}
	if _, err := port.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, v)
	if v.Err() != nil {
		t.Errorf("a power-off is an error: %v", v.Err())
	}
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "TEST ready") {
		t.Errorf("console log: %d bytes, %v", len(b), err)
	}
}

// echo sends a byte to the VM and waits for it to come back.
func echo(t *testing.T, port net.Conn) {
	t.Helper()
	b := []byte("x")
	if _, err := port.Write(b); err != nil {
		t.Fatal(err)
	}
	port.SetReadDeadline(time.Now().Add(bootTimeout))
	b[0] = 0
	if _, err := port.Read(b); err != nil || b[0] != 'x' {
		t.Fatalf("echo over the channel: %q, %v", b, err)
	}
}

func awaitEnd(t *testing.T, v *VM) {
	t.Helper()
	select {
	case <-v.Done():
	case <-time.After(bootTimeout):
		t.Fatal("the VM did not end")
	}
}

// checkConfined verifies the process: its own group, no file but its own, the seccomp filter enabled.
func checkConfined(t *testing.T, v *VM) {
	t.Helper()
	if pgid, err := syscall.Getpgid(v.PID()); err != nil || pgid != v.PID() {
		t.Errorf("process group %d, %v", pgid, err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(v.PID()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	if r := testCaps(t); r.Sandbox && !strings.Contains(string(status), "Seccomp:\t2") {
		t.Error("no seccomp filter")
	}
	dir := "/proc/" + strconv.Itoa(v.PID()) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		to, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if to == canaryPath {
			t.Errorf("a file of ours leaked: descriptor %s is %s", e.Name(), to)
		}
	}
}

// TestBootTwo boots two VMs at once with a link between them and a region, as a cluster does.
func TestBootTwo(t *testing.T) {
	r := newRig(t)
	r.set.Region = &plan.Region{SizeBytes: 4 * mib, Backing: "shm", Device: "ivshmem", HostNode: -1}
	fd, err := unix.MemfdCreate("region", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	reg := os.NewFile(uintptr(fd), "region")
	defer reg.Close()
	if err := reg.Truncate(4 * mib); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var vms []*VM
	for i := range pair {
		end := os.NewFile(uintptr(pair[i]), "link")
		vm := onePlan()
		vm.Name, vm.Index = fmt.Sprintf("vm%d", i), i
		r.set.Links = []backend.Link{{Kind: backend.LinkStream, MAC: fmt.Sprintf("52:54:00:00:00:%02x", i), MTU: 65521}}
		v, _ := r.start(vm, Files{Files: backend.Files{Region: reg, Links: []*os.File{end}}}, Options{})
		end.Close()
		vms = append(vms, v)
	}
	for i, v := range vms {
		await(t, v, "TEST up")
		if got := line(v, "config"); got != fmt.Sprintf("name vm%d", i) {
			t.Errorf("config %q", got)
		}
		if got := line(v, "mtu eth0"); got != "65521" {
			t.Errorf("MTU %q", got)
		}
		if !strings.Contains(strings.Join(v.LastLines(500), "\n"), "pci:v00001AF4d00001110") {
			t.Error("no ivshmem device in the VM")
		}
	}
}

// TestBootNodes has the VM's kernel print its NUMA nodes, including memory-only ones.
func TestBootNodes(t *testing.T) {
	r := newRig(t)
	vm := onePlan()
	vm.VCPUs, vm.Cores, vm.MemoryBytes = 2, 2, 384*mib
	for i, cpus := range [][]int{{0}, {1}, nil} {
		d := []int{17, 17, 17}
		d[i] = 10
		vm.Nodes = append(vm.Nodes, plan.Node{ID: i, VCPUs: cpus, MemoryBytes: 128 * mib, HostNodes: []int{0}, Distances: d})
	}
	v, _ := r.start(vm, Files{}, Options{})
	await(t, v, "TEST up")
	if online, dist := line(v, "online"), line(v, "distance"); online != "0-2" || dist != "10 17 17" {
		t.Errorf("nodes %q, distances of the first %q", online, dist)
	}
}

// TestBootDies has the VM's kernel print which vCPUs share a die and a last-level cache: each die has one.
func TestBootDies(t *testing.T) {
	r := newRig(t)
	if !showsLeaves(r.set.Accel, firmware(onePlan(), r.set, r.caps)) {
		needs(t, errors.New("no dies are shown without qboot, or with a kernel that has no PVH entry"))
	}
	vm := onePlan()
	vm.VCPUs, vm.Dies, vm.Cores = 4, 2, 2
	v, _ := r.start(vm, Files{}, Options{})
	await(t, v, "TEST up")
	for i := 0; i < vm.VCPUs; i++ {
		got := fmt.Sprintf("package %s die %s l3 %s", line(v, fmt.Sprintf("package cpu%d", i)), line(v, fmt.Sprintf("die cpu%d", i)), line(v, fmt.Sprintf("l3 cpu%d", i)))
		want := "package 0 die 0 l3 0-1"
		if i >= 2 {
			want = "package 0 die 1 l3 2-3"
		}
		if got != want {
			t.Errorf("vCPU %d: %s, want %s", i, got, want)
		}
	}
}

// TestBootThreads has the VM's kernel print which vCPUs are threads of a core.
func TestBootThreads(t *testing.T) {
	r := newRig(t)
	if !showsLeaves(r.set.Accel, firmware(onePlan(), r.set, r.caps)) {
		needs(t, errors.New("no threads are shown without qboot, or with a kernel that has no PVH entry"))
	}
	vm := onePlan()
	vm.VCPUs, vm.Cores, vm.Threads = 4, 2, 2
	v, _ := r.start(vm, Files{}, Options{})
	await(t, v, "TEST up")
	for i, want := range []string{"0-1", "0-1", "2-3", "2-3"} {
		if got := line(v, fmt.Sprintf("threads cpu%d", i)); got != want {
			t.Errorf("vCPU %d: threads %q of its core, want %s\n%s", i, got, want, strings.Join(v.LastLines(100), "\n"))
		}
	}
}

// TestBootDevdax presents the region as an NVDIMM: the VM's kernel finds a namespace on it.
func TestBootDevdax(t *testing.T) {
	r := rigOf(t, testImage(t, true))
	const regionBytes = 128 * mib
	r.set.Region = &plan.Region{SizeBytes: regionBytes, Backing: "shm", Device: "devdax", HostNode: -1}
	fd, err := unix.MemfdCreate("region", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	reg := os.NewFile(uintptr(fd), "region")
	defer reg.Close()
	if err := reg.Truncate(regionBytes); err != nil {
		t.Fatal(err)
	}
	v, _ := r.start(onePlan(), Files{Files: backend.Files{Region: reg}}, Options{})
	await(t, v, "TEST up")
	if got := line(v, "nd namespace0.0"); got != strconv.Itoa(regionBytes) {
		t.Errorf("namespace of %q bytes:\n%s", got, strings.Join(v.LastLines(100), "\n"))
	}
}

// raw is a device that only this test uses.
type raw []string

func (raw) Valid() error     { return nil }
func (r raw) Args() []string { return r }

// TestBootExpander puts a device below a PCIe expander of the second node, as a plan does with a host's device, under
// the firmware of such VMs; the VM's kernel must see it on that node.
func TestBootExpander(t *testing.T) {
	r := newRig(t)
	r.caps.Qboot = "" // as Build does with devices
	vm := onePlan()
	vm.VCPUs, vm.Cores = 2, 2
	vm.Nodes = []plan.Node{{ID: 0, VCPUs: []int{0}, MemoryBytes: 128 * mib}, {ID: 1, VCPUs: []int{1}, MemoryBytes: 128 * mib}}
	m, err := Build(vm, r.set, r.caps)
	if err != nil {
		t.Fatal(err)
	}
	m.use(expander{"pxb1", 128, 1}, rootPort{"port0", "pxb1", 1}, raw{"-device", "virtio-rng-pci,bus=port0"})
	v, _ := r.startMachine(m, Files{}, Options{})
	await(t, v, "TEST up")
	if got := line(v, "pcinode 0000:82:00.0") + line(v, "pcinode 0000:81:00.0"); got != "1" {
		t.Errorf("node %q:\n%s", got, strings.Join(v.LastLines(100), "\n"))
	}
}

const canaryPath = "/etc/passwd"

// TestMain leaves a file open that is not close-on-exec, as a careless parent process may: QEMU must not inherit it.
func TestMain(m *testing.M) {
	fd, err := unix.Open(canaryPath, unix.O_RDONLY, 0)
	if err == nil {
		// The number is high, because QEMU's own files use the low ones.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 100)
	}
	if err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestPanic has the VM's kernel panic: the VM ends and reports it.
func TestPanic(t *testing.T) {
	r := newRig(t)
	v, port := r.start(onePlan(), Files{}, Options{})
	await(t, v, "TEST up")
	port.Write([]byte("p"))
	awaitEnd(t, v)
	if !errors.Is(v.Err(), backend.ErrReset) {
		t.Errorf("error: %v", v.Err())
	}
	if !strings.Contains(strings.Join(v.LastLines(100), "\n"), "Kernel panic") {
		t.Errorf("the console does not show it:\n%s", strings.Join(v.LastLines(10), "\n"))
	}
}
