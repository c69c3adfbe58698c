package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nearmetal/test/hosttree"
)

// read matches the files that the tests read of a captured tree: a tenth of them.
var read = regexp.MustCompile(`^(\./)?(dev/|sys/bus/pci|sys/class/(net|infiniband)|sys/kernel/iommu_groups|sys/devices/pci0000)`)

// capture unpacks a captured tree with its links and modes.
func capture(t testing.TB, name string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(hosttree.Dir(t))
	if err == nil {
		err = hosttree.Unpack(root, filepath.Join("testdata", name+".tar.gz"), read.MatchString)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	thePF = "0000:41:00.0" // on the captured host
	slot  = "/sys/devices/pci0000:40/0000:40:00.0"
)

// kernel simulates the kernel of a captured tree: writes to its attributes have the effects that they have in the
// kernel, and as in the kernel these occur asynchronously.
type kernel struct {
	t    testing.TB
	root string
	fd   int
	wds  map[int32]string
	stop chan struct{}
	idle atomic.Int64 // number of idle iterations
	done chan struct{}

	mu     sync.Mutex
	writes int                             // attributes written so far
	before func(n int, path, value string) // called before the nth write (from 1) has its effect; may be nil
	delay  time.Duration                   // of each effect
	stolen string                          // a driver that binds functions before vfio-pci
	ofed   bool                            // MLNX_OFED's driver: files for the VFs' attributes
	lost   int                             // number of a VF that never appears, -1: none
}

func emulate(t testing.TB, root string) *kernel {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{t: t, root: root, fd: fd, wds: map[int32]string{}, stop: make(chan struct{}), done: make(chan struct{}), lost: -1}
	for _, d := range []string{"igbvf", "vfio-pci"} {
		for _, a := range []string{"bind", "unbind"} {
			k.put(pciDrivers+"/"+d+"/"+a, "")
		}
	}
	for _, d := range []string{"/sys/bus/pci", pciDrivers + "/igb", pciDrivers + "/igbvf", pciDrivers + "/vfio-pci", slot + "/" + thePF} {
		k.watch(d)
	}
	os.MkdirAll(root+"/dev/vfio", 0o755)
	os.Remove(root + "/dev/vfio/LISTING")
	for _, a := range k.devices() {
		if strings.HasPrefix(a, "0000:41:1") {
			k.watch(slot + "/" + a)
			if k.driver(a) == vfioDriver {
				k.put(groupFile(k.group(a)), "")
			}
		}
	}
	go k.run()
	t.Cleanup(func() {
		close(k.stop)
		<-k.done
		unix.Close(fd)
	})
	return k
}

func (k *kernel) watch(dir string) {
	wd, err := unix.InotifyAddWatch(k.fd, k.root+dir, unix.IN_CLOSE_WRITE)
	if err != nil {
		k.t.Error(dir, err)
	}
	k.wds[int32(wd)] = dir
}

func (k *kernel) run() {
	defer close(k.done)
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-k.stop:
			return
		default:
		}
		p := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(p, 5); n < 1 {
			k.idle.Add(1)
			continue
		}
		n, err := unix.Read(k.fd, buf)
		if err != nil {
			return
		}
		for at := 0; at < n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+int(e.Len)]), "\x00")
			k.wrote(k.wds[e.Wd], name)
			at += unix.SizeofInotifyEvent + int(e.Len)
		}
	}
}

// wrote performs the effects of a write.
func (k *kernel) wrote(dir, name string) {
	value := k.get(dir + "/" + name)
	switch name {
	case "sriov_numvfs", "driver_override", "drivers_probe", "bind", "unbind", "sriov_drivers_autoprobe":
	default:
		return
	}
	if name == "driver_override" && value == "(null)" {
		return // made by the simulation
	}
	if value == "" && (name == "bind" || name == "unbind" || name == "drivers_probe") {
		return // made by the simulation
	}
	k.mu.Lock()
	k.writes++
	n, before, delay := k.writes, k.before, k.delay
	k.mu.Unlock()
	if before != nil {
		before(n, dir+"/"+name, value)
	}
	time.Sleep(delay)
	switch name {
	case "sriov_numvfs":
		want, _ := strconv.Atoi(value)
		k.vfs(want)
	case "driver_override":
		if value == "" {
			k.put(dir+"/"+name, "(null)\n")
		}
	case "drivers_probe":
		k.put(dir+"/"+name, "")
		k.probe(value)
	case "bind":
		k.put(dir+"/"+name, "")
		k.bind(value, filepath.Base(dir))
	case "unbind":
		k.put(dir+"/"+name, "")
		k.unbind(value)
	}
}

func (k *kernel) devices() []string {
	entries, _ := os.ReadDir(k.root + pciDevices)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func (k *kernel) get(path string) string {
	b, _ := os.ReadFile(k.root + path)
	return strings.TrimSpace(string(b))
}

func (k *kernel) put(path, text string) {
	os.MkdirAll(filepath.Dir(k.root+path), 0o755)
	if err := os.WriteFile(k.root+path, []byte(text), 0o644); err != nil {
		k.t.Error(err)
	}
}

func (k *kernel) link(target, path string) {
	os.MkdirAll(filepath.Dir(k.root+path), 0o755)
	if err := os.Symlink(target, k.root+path); err != nil && !errors.Is(err, fs.ErrExist) {
		k.t.Error(err)
	}
}

func (k *kernel) driver(a string) string {
	p, _ := os.Readlink(k.root + slot + "/" + a + "/driver")
	return filepath.Base("/" + p)
}

func (k *kernel) group(a string) int {
	p, _ := os.Readlink(k.root + slot + "/" + a + "/iommu_group")
	n, _ := strconv.Atoi(filepath.Base(p))
	return n
}

func (k *kernel) bind(a, driver string) {
	if k.driver(a) != "/" {
		return
	}
	if driver == vfioDriver {
		k.put(groupFile(k.group(a)), "")
		os.Chmod(k.root+groupFile(k.group(a)), 0o600)
	}
	k.link("../../../../bus/pci/drivers/"+driver, slot+"/"+a+"/driver")
}

func (k *kernel) unbind(a string) {
	if k.driver(a) == vfioDriver {
		os.Remove(k.root + groupFile(k.group(a)))
	}
	os.Remove(k.root + slot + "/" + a + "/driver")
}

func (k *kernel) probe(a string) {
	if _, err := os.Stat(k.root + pciDevices + "/" + a); err != nil || k.driver(a) != "/" {
		return
	}
	switch o := k.get(slot + "/" + a + "/driver_override"); {
	case k.stolen != "":
		k.bind(a, k.stolen)
	case o != "" && o != "(null)":
		k.bind(a, o)
	case k.get(slot+"/"+thePF+"/sriov_drivers_autoprobe") == "1":
		k.bind(a, "igbvf")
	}
}

// vfAddress returns the address of VF i, from the offset and stride of the card's SR-IOV capability (s1: 41:10.0,
// 41:10.2).
func vfAddress(i int) string {
	rid := 0x41<<8 | 0x80 + 2*i
	return fmt.Sprintf("0000:%02x:%02x.%d", rid>>8, rid>>3&0x1f, rid&7)
}

// vfs sets the number of the card's VFs to n.
func (k *kernel) vfs(n int) {
	most, _ := strconv.Atoi(k.get(slot + "/" + thePF + "/sriov_totalvfs"))
	for i := range most {
		a := vfAddress(i)
		if _, err := os.Stat(k.root + slot + "/" + a); err == nil && n == 0 {
			k.unbind(a)
			g := k.group(a)
			os.Remove(k.root + pciDevices + "/" + a)
			os.Remove(fmt.Sprint(k.root, slot, "/", thePF, "/virtfn", i))
			os.RemoveAll(k.root + slot + "/" + a)
			os.RemoveAll(fmt.Sprint(k.root, "/sys/kernel/iommu_groups/", g))
		}
	}
	for i := 0; i < n; i++ {
		if i == k.lost {
			continue
		}
		k.vf(i)
		time.Sleep(k.delay)
	}
}

// vf makes one VF; its group is last, except for the PF's link to it.
func (k *kernel) vf(i int) {
	a := vfAddress(i)
	dir := slot + "/" + a
	for name, text := range map[string]string{
		"vendor": "0x8086", "device": "0x10ca", "class": "0x020000", "numa_node": "1", "enable": "0",
		"driver_override": "(null)", "modalias": "pci:v00008086d000010CAsv00001AF4sd00001100bc02sc00i00",
		"resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000",
	} {
		k.put(dir+"/"+name, text+"\n")
	}
	k.watch(dir)
	k.link("../"+thePF, dir+"/physfn")
	k.link("../../../devices/pci0000:40/0000:40:00.0/"+a, pciDevices+"/"+a)
	group := 8 + i
	os.MkdirAll(fmt.Sprint(k.root, "/sys/kernel/iommu_groups/", group, "/devices"), 0o755)
	k.link("../../../../devices/pci0000:40/0000:40:00.0/"+a, fmt.Sprint("/sys/kernel/iommu_groups/", group, "/devices/", a))
	k.link("../"+a, fmt.Sprint(slot, "/", thePF, "/virtfn", i))
	if k.ofed {
		for name, text := range map[string]string{"node": noGUID, "port": noGUID, "policy": "Down"} {
			k.put(fmt.Sprint(slot, "/", thePF, "/sriov/", i, "/", name), text+"\n")
		}
	}
	time.Sleep(k.delay)
	k.link(fmt.Sprint("../../../../kernel/iommu_groups/", group), dir+"/iommu_group")
	k.probe(a)
}

// state describes the parts of a host that this package may change.
func (k *kernel) state() string {
	var b strings.Builder
	for _, a := range k.devices() {
		dir := pciDevices + "/" + a
		d, _ := os.Readlink(k.root + dir + "/driver")
		fmt.Fprintf(&b, "%s driver %s override %s vfs %s autoprobe %s\n", a, filepath.Base("/"+d), k.get(dir+"/driver_override"),
			k.get(dir+"/sriov_numvfs"), k.get(dir+"/sriov_drivers_autoprobe"))
	}
	links, _ := filepath.Glob(k.root + "/links/*")
	for _, f := range links {
		fmt.Fprintf(&b, "%s %s\n", filepath.Base(f), k.get(strings.TrimPrefix(f, k.root)))
	}
	files, _ := filepath.Glob(k.root + "/dev/vfio/*")
	sort.Strings(files)
	for _, f := range files {
		var st unix.Stat_t
		unix.Stat(f, &st)
		fmt.Fprintf(&b, "%s owner %d mode %o\n", strings.TrimPrefix(f, k.root), st.Uid, st.Mode&0o777)
	}
	return b.String()
}

// settle waits until the kernel has no more work. Earlier writes are already in its queue.
func (k *kernel) settle() {
	for n := k.idle.Load(); k.idle.Load() < n+2; {
		time.Sleep(time.Millisecond)
	}
}
