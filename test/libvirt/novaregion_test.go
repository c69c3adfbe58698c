package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/image"
)

// compute is an OpenStack compute host in all that the region's hook sees: a libvirtd, and domains with Nova's metadata.
// Nova itself is not there.
type compute struct {
	*site
	kernel, initrd string
}

const (
	regionBytes = 16 << 20
	tenantA     = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	tenantB     = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func newCompute(t *testing.T) *compute {
	c := &compute{site: ofHost(t)}
	c.program = copied // libvirtd's VMs run as a user who may not look into our directories
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/run/nearmetal", "/etc/nearmetal", "/var/lib/nearmetal"} {
		if os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() { os.Remove(dir) })
		}
		c.inside("mkdir", "-p", dir).want(0) // in its own copy of /etc
		c.inside("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", dir).want(0)
	}
	c.inside("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm").want(0)
	k, err := image.FindKernel("")
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Open(image.Request{Kernel: k, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	config := guest.Config{Name: "vm", Root: guest.Mount{Tag: "root"}, Region: &guest.ConfigRegion{Kind: "ivshmem", Size: regionBytes}}
	text, err := config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := img.WithConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	defer initrd.Close()
	c.kernel, c.initrd = c.host.dir+"/vmlinuz", c.host.dir+"/initrd"
	for path, f := range map[string]*os.File{c.kernel: img.KernelFile(), c.initrd: initrd} {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(c.host.dir+"/agents", 0o755), os.Chmod(c.host.dir+"/agents", 0o777)); err != nil {
		t.Fatal(err)
	}
	return c
}

// inside runs a program where the daemon runs.
func (c *compute) inside(args ...string) result {
	c.t.Helper()
	return c.finish(c.command(args[0], args[1:]...))
}

// region runs nearmetal host openstack-region there.
func (c *compute) region(args ...string) result {
	c.t.Helper()
	return c.inside(append([]string{c.program, "host", "openstack-region"}, args...)...)
}

// server is a server of OpenStack's.
type server struct {
	n                          int
	name, tenant, flavor, kind string
	boots                      bool // it has a kernel; else it stays in its firmware
}

// uuid is this process's own.
func (s *server) uuid() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.n, os.Getpid())
}

func (s *server) domain() string { return fmt.Sprintf("instance-%08x", s.n) }

func (c *compute) socket(s *server) string { return fmt.Sprintf("%s/agents/%d", c.host.dir, s.n) }

// boot has libvirtd start a server, as Nova does.
func (c *compute) boot(s *server) result {
	c.t.Helper()
	ports, start, console := "", "", ""
	if s.kind == "q35" {
		for i := range 10 {
			ports += fmt.Sprintf("<controller type='pci' index='%d' model='pcie-root-port'/>", i+1)
		}
	}
	if s.boots {
		start = fmt.Sprintf("<kernel>%s</kernel><initrd>%s</initrd><cmdline>console=ttyS0 quiet</cmdline>", c.kernel, c.initrd)
		console = fmt.Sprintf(`<filesystem type='mount' accessmode='squash'><source dir='/'/><target dir='root'/><readonly/></filesystem>
<channel type='unix'><source mode='bind' path='%s'/><target type='virtio' name='%s'/></channel>
<serial type='file'><source path='%s/console-%d'/></serial>`, c.socket(s), guest.PortName, c.host.dir, s.n)
	}
	// Two vCPUs: with one, QEMU emulates atomics as if nobody else were there.
	xml := fmt.Sprintf(`<domain type='qemu'><name>%s</name><uuid>%s</uuid>
<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>%s</nova:name>
<nova:flavor name="%s"><nova:memory>256</nova:memory></nova:flavor>
<nova:owner><nova:user uuid="u">ann</nova:user><nova:project uuid="%s">fluids</nova:project></nova:owner></nova:instance></metadata>
<memory unit='MiB'>256</memory><vcpu>2</vcpu><os><type machine='%s'>hvm</type>%s</os><features><acpi/></features><cpu mode='maximum'/>
<devices>%s%s<memballoon model='none'/></devices></domain>`,
		s.domain(), s.uuid(), s.name, s.flavor, s.tenant, s.kind, start, ports, console)
	c.t.Cleanup(func() { // where the test failed
		if pid := c.running(s.domain()); pid != 0 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	file := filepath.Join(c.home, s.domain()+".xml")
	if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.virsh("create", file)
}

// agent waits until a server's guest is ready.
func (c *compute) agent(s *server) *guest.Agent {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	c.t.Cleanup(cancel)
	conn, err := net.Dial("unix", c.socket(s))
	if err != nil {
		c.t.Fatal(err)
	}
	a, err := guest.NewAgent(ctx, conn, guest.AgentOptions{Name: s.name})
	if err != nil {
		console, _ := os.ReadFile(fmt.Sprintf("%s/console-%d", c.host.dir, s.n))
		c.t.Fatalf("%v\n%s\n%s", err, console, c.region("status").out)
	}
	c.t.Cleanup(func() { a.Close() })
	return a
}

// in runs a program in a guest, nearmetal as nobody and others as root, and returns what it printed.
func (c *compute) in(a *guest.Agent, args ...string) <-chan string {
	c.t.Helper()
	uid := uint32(0)
	if args[0] == copied {
		uid = 65534
	}
	p, err := a.Start(guest.Exec{UID: uid, GID: uid, Args: args, Env: []string{"PATH=/usr/bin:/bin", "FI_PROVIDER_PATH=" + top + "/lib"}, Dir: "/", NoStdin: true})
	if err != nil {
		c.t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		errs := make(chan []byte, 1)
		go func() { b, _ := io.ReadAll(p.Stderr); errs <- b }()
		out, _ := io.ReadAll(p.Stdout)
		st, err := p.Wait()
		said <- fmt.Sprintf("%s%s%v %v", out, <-errs, st, err)
		p.Close()
	}()
	return said
}

// wanted waits for what status has to say; no event says when a region was plugged.
func (c *compute) wanted(what string, ok func(lines []string) bool) {
	c.t.Helper()
	var r result
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		r = c.region("status")
		var rows []string
		for _, l := range strings.Split(r.out, "\n") {
			if strings.Contains(l, "instance-") {
				rows = append(rows, strings.Join(strings.Fields(l), " "))
			}
		}
		if ok(rows) {
			return
		}
	}
	c.t.Fatalf("%s: exit status %d\n%s\n%s", what, r.code, r.out, r.err)
}

// count waits until n VMs have their region, and as many files of memory are there.
func (c *compute) count(vms, regions int) {
	c.t.Helper()
	c.wanted(fmt.Sprint(vms, " VMs"), func(rows []string) bool {
		n := 0
		for _, r := range rows {
			if strings.HasSuffix(r, " there") {
				n++
			}
		}
		return n == vms && len(rows) == vms
	})
	if got := strings.Fields(c.inside("find", "/dev/shm", "-type", "f").out); len(got) != regions {
		c.t.Fatalf("%d regions: %q", regions, got)
	}
}

// install installs the hook, beside another one, and restarts libvirtd.
func (c *compute) install() {
	c.t.Helper()
	c.region("install", "--connect", c.on, "--flavor", "hpc=16MiB").want(0, "restart libvirtd")
	c.region("status").want(3, "restart libvirtd")
	c.inside("sh", "-c", "printf '#!/bin/sh\\nexit 0\\n' >"+otherHook+" && chmod 755 "+otherHook).want(0)
	c.host.kill()
	c.host.start()
	c.region("status").want(0, "libvirtd runs it")
}

const otherHook = "/etc/libvirt/hooks/qemu.d/other"

// The region between servers of an unpatched Nova, on a real libvirtd. It outlives its VMs one by one, and QEMU's and
// libvirtd's kills; it ends with the last one.
func TestNovaRegion(t *testing.T) {
	onDemand(t)
	c := newCompute(t)
	c.install()
	vm0 := &server{1, "demo-vm0", tenantA, "hpc", "q35", false}
	vm1 := &server{2, "demo-vm1", tenantA, "hpc", "pc", false}
	alien := &server{3, "demo-vm0", tenantB, "hpc", "q35", false}
	plain := &server{4, "demo-vm2", tenantA, "m1.tiny", "pc", false}
	// Strangers who claim to be the QEMUs of the servers get no region, and keep none.
	for _, s := range []*server{vm0, vm1, alien} {
		c.stranger(s.uuid())
	}
	for _, s := range []*server{vm0, vm1, alien, plain} {
		c.boot(s).want(0)
	}
	c.count(3, 2)
	if got := c.inside("find", "/dev/shm", "-type", "f", "!", "-user", "libvirt-qemu").out; got != "" {
		t.Errorf("regions of others than libvirt's user: %s", c.inside("ls", "-lR", "/dev/shm").out)
	}
	for _, s := range []*server{vm0, vm1} {
		c.virsh("dumpxml", s.domain()).want(0, "ivshmem-plain")
	}
	if dump := c.virsh("dumpxml", plain.domain()).out; strings.Contains(dump, "ivshmem") {
		t.Error("a flavor without a region has one")
	}
	c.virsh("save", vm0.domain(), c.host.dir+"/saved").want(1, "shmem")

	// Hard reboot: Nova ends the domain and makes it again.
	c.virsh("destroy", vm1.domain()).want(0)
	c.count(2, 2)
	c.boot(vm1).want(0)
	c.count(3, 2)

	// QEMU is killed; then libvirtd, and while it is away another QEMU.
	c.kill9(vm1)
	c.count(2, 2)
	c.host.kill()
	c.kill9(alien)
	c.host.start()
	c.count(1, 1)
	c.boot(vm1).want(0)
	c.count(2, 1)
	c.region("remove").want(125, "end or migrate them first")

	// What cannot be keeps the server from starting, and says why in one line that Nova shows.
	c.region("install", "--connect", c.on, "--flavor", "hpc=16MiB", "--flavor", "huge=1TiB").want(0, "changed")
	c.boot(&server{7, "big-vm0", tenantA, "huge", "pc", false}).want(1, "memory are asked for")
	c.count(2, 1)

	for _, s := range []*server{vm0, vm1} {
		c.virsh("destroy", s.domain()).want(0)
	}
	c.count(0, 0)
	c.region("remove").want(0, "removed")
	if got := c.inside("find", "/etc/libvirt/hooks", "/run/nearmetal", "/etc/nearmetal", "/var/lib/nearmetal", "/dev/shm", "-type", "f", "!", "-name", "lock").out; got != otherHook+"\n" {
		t.Errorf("left: %q", got)
	}
}

// Guests on both kinds of machines find the region and talk over it; the provider finds it, and a user without rights sees
// that the flavor's promise is kept.
func TestNovaRegionGuests(t *testing.T) {
	onDemand(t)
	c := newCompute(t)
	c.install()
	vm0 := &server{1, "demo-vm0", tenantA, "hpc", "q35", true}
	vm1 := &server{2, "demo-vm1", tenantA, "hpc", "pc", true}
	for _, s := range []*server{vm0, vm1} {
		c.boot(s).want(0)
	}
	c.count(2, 1)
	for _, p := range []string{"region_pingpong", "region_atomics"} {
		c.inside("install", "-m755", filepath.Join(kernels, p), top+"/"+p).want(0)
	}
	c.inside("install", "-D", "-m755", filepath.Join(filepath.Dir(kernels), "fabric", "libivshmem-fi.so"), top+"/lib/libivshmem-fi.so").want(0)
	a0, a1 := c.agent(vm0), c.agent(vm1)
	t.Log(<-c.in(a0, "sh", "-c", "ls -la "+top+"; id; head -c4 "+copied+" | od -c | head -1; grep -E ' /( tmp)? |tmp' /proc/mounts; grep Cap /proc/self/status"))
	for _, a := range []*guest.Agent{a0, a1} {
		if got := <-c.in(a, "fi_info", "-p", "ivshmem"); !strings.Contains(got, "provider: ivshmem") {
			t.Errorf("fi_info: %s", got)
		}
	}
	if err := os.WriteFile(top+"/flavor.json", []byte(`{"name": "hpc", "vcpus": 2, "ram": 256, "properties": {"nearmetal:region": "16MiB"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	got := <-c.in(a0, copied, "verify", "--flavor", top+"/flavor.json")
	for _, want := range []string{"region ivshmem, 16 MiB ivshmem, 16 MiB ok", "vCPUs 2 2 ok", "emulated (TCG)", "1 of 15 points differ", "hpet differs"} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("verify --flavor: %q is missing in\n%s", want, got)
		}
	}
	if got := <-c.in(a1, copied, "check", "--vm"); !strings.Contains(got, "vm.accel") {
		t.Errorf("check --vm: %s", got)
	}
	b := c.in(a1, top+"/region_atomics", "--role", "b")
	if got := <-c.in(a0, top+"/region_atomics", "--role", "a", "--operations", "20000", "--rounds", "200"); !strings.Contains(got, "exit status 0") {
		t.Fatalf("region_atomics: %s\n%s", got, <-b)
	}
	<-b
	c.host.kill() // a guest does not notice
	c.host.start()
	if got := <-c.in(a0, "sh", "-c", "stat -L -c %s /dev/nearmetal/region"); !strings.Contains(got, fmt.Sprint(regionBytes)) {
		t.Errorf("the region after libvirtd's restart: %s", got)
	}
	for _, s := range []*server{vm0, vm1} {
		// libvirtd is still finding its domains again.
		c.virsh("domstate", s.domain()).want(0, "running")
		c.virsh("destroy", s.domain()).want(0)
	}
	c.count(0, 0)
}

func onDemand(t *testing.T) {
	t.Helper()
	if os.Getenv("NEARMETAL_OPENSTACK") == "" {
		t.Skip("takes a minute: make test-openstack-region")
	}
}

// kill9 kills the QEMU of a server.
func (c *compute) kill9(s *server) {
	c.t.Helper()
	kill(c.t, c.qemu(s.domain()))
}
