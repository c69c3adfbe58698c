package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/host/change"
	"nearmetal/internal/process"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
)

const (
	projectA = "6c0dc6bb8f1b4b6f8f7c7c4f3a1d2e3f"
	projectB = "0123456789abcdef0123456789abcdef"
)

// nova is a domain as Nova writes it, with the parts that the hook reads.
type nova struct {
	uuid, server, project, flavor, specs, machine, devices, tune string
}

func (n nova) xml() string {
	if n.machine == "" {
		n.machine = "pc-i440fx-7.2"
	}
	return fmt.Sprintf(`<domain type='kvm' id='3'>
  <name>instance-%.8s</name>
  <uuid>%s</uuid>
  <metadata>
    <other:thing xmlns:other="http://example.com/1"><instance><name>not-nova-1</name></instance></other:thing>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="26.2.1"/>
      <nova:name>%s</nova:name>
      <nova:creationTime>2026-11-20 10:11:12</nova:creationTime>
      <nova:flavor name="%s">
        <nova:memory>256</nova:memory>
        <nova:vcpus>1</nova:vcpus>%s
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="11111111111111111111111111111111">ann</nova:user>
        <nova:project uuid="%s">fluids</nova:project>
      </nova:owner>
    </nova:instance>
  </metadata>%s
  <os><type arch='x86_64' machine='%s'>hvm</type></os>
  <on_reboot>restart</on_reboot>
  <devices>%s<memballoon model='virtio'><address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></memballoon></devices>
</domain>`, n.uuid, n.uuid, n.server, n.flavor, n.specs, n.project, n.tune, n.machine, n.devices)
}

func id(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n) }

const ports = `<controller type='pci' index='0' model='pcie-root'/><controller type='pci' index='5' model='pcie-root-port'/>
<controller type='pci' index='6' model='pcie-root-port'><address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/></controller>`

func TestParseDomain(t *testing.T) {
	parse := func(n nova) *Domain {
		t.Helper()
		d, err := ParseDomain(strings.NewReader(n.xml()))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	d := parse(base)
	want := Domain{UUID: id(1), Name: "instance-00000001", Project: projectA, Group: "demo", Flavor: "hpc.1", Bus: BusPCI, Node: -1, Reboots: true, User: -1}
	if d.Specs = nil; fmt.Sprintf("%+v", *d) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v, want %+v", *d, want)
	}
	base.machine, base.devices = "pc-q35-7.2", ports
	base.tune = "<numatune><memory mode='strict' nodeset='1,3'/><memnode cellid='1' mode='strict' nodeset='1'/><memnode cellid='0' mode='strict' nodeset='3'/></numatune>"
	base.specs = `<nova:extraSpecs><nova:extraSpec name="nearmetal:region"> 64MiB </nova:extraSpec></nova:extraSpecs>`
	if d = parse(base); d.Bus != BusPCIe || d.Port != 6 || d.Node != 3 || d.Specs[ExtraSpec] != "64MiB" {
		t.Errorf("%+v", d)
	}
	label := func(model, text string) int {
		d, err := ParseDomain(strings.NewReader(strings.Replace(base.xml(), "</domain>", "<seclabel model='"+model+"'><label>"+text+"</label></seclabel></domain>", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return d.User
	}
	if a, b, c := label("dac", "+64055:+64056"), label("dac", "qemu:qemu"), label("apparmor", "107:107"); a != 64055 || b != -1 || c != -1 {
		t.Errorf("users %d, %d, %d", a, b, c)
	}
	base.devices = strings.ReplaceAll(ports, "index='6'", "index='7'") + "<interface><address type='pci' bus='0x07'/></interface>"
	if d = parse(base); d.Port != 0 {
		t.Errorf("port %d is taken", d.Port)
	}
	base.machine = "microvm"
	if d = parse(base); d.Bus != "" {
		t.Errorf("%+v", d)
	}
	if d, err := ParseDomain(strings.NewReader("<domain><name>web</name></domain>")); d != nil || err != nil {
		t.Errorf("not Nova's: %v, %v", d, err)
	}
	for name, text := range map[string]string{
		"no UUID":      strings.ReplaceAll(base.xml(), id(1), "../../etc"),
		"no project":   strings.ReplaceAll(base.xml(), projectA, "../x"),
		"not XML":      base.xml()[:200] + novaSpace,
		"without end":  base.xml()[:len(base.xml())-20],
		"bytes":        novaSpace + strings.Repeat(" ", xmlMax),
		"UUID, twice ": strings.Replace(base.xml(), "<uuid>", "<uuid>"+id(2)+" ", 1),
	} {
		if d, err := ParseDomain(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for server, group := range map[string]string{"demo-vm0": "demo", "slurm-compute-17": "slurm-compute", "a.b": "a", "web": "web", "-x": "-x", "": ""} {
		if got := GroupOf(server); got != group {
			t.Errorf("group of %q: %q, want %q", server, got, group)
		}
	}
}

// newPaths returns the paths of a test's host, with the hook's configuration.
func newPaths(t *testing.T) Paths {
	t.Helper()
	dir := t.TempDir()
	shared, err := os.MkdirTemp("/dev/shm", "nm-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	p := Paths{Config: dir + "/etc/config.json", HookFile: dir + "/etc/hooks/qemu.d/nearmetal-region", State: dir + "/run/state",
		Memory: shared + "/private", Shared: shared, Journal: dir + "/journal"}
	if _, err := p.install(config("/bin/true")); err != nil {
		t.Fatal(err)
	}
	return p
}

func config(program string) *Config {
	return &Config{Version: 1, Program: program, Connect: "qemu:///system", Flavors: map[string]spec.Size{"hpc.1": 1 << 20, "hpc.2": 2 << 20}}
}

func (n nova) hook(t *testing.T, p Paths, op string) error {
	t.Helper()
	return p.Hook(op, strings.NewReader(n.xml()))
}

// memories returns the files of regions, by name.
func (p Paths) memories(t *testing.T) []string {
	t.Helper()
	list, _ := filepath.Glob(p.Memory + "/*")
	return list
}

// TestHook: a region exists from the first VM's start to the last VM's end. Another project, group or size has
// another region, and zeroes remain of a removed one.
func TestHook(t *testing.T) {
	p := newPaths(t)
	a0 := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	a1 := nova{uuid: id(2), server: "demo-vm1", project: projectA, flavor: "hpc.1"}
	others := []nova{
		{uuid: id(3), server: "demo-vm0", project: projectB, flavor: "hpc.1"},
		{uuid: id(4), server: "other-vm0", project: projectA, flavor: "hpc.1"},
		{uuid: id(5), server: "demo-vm2", project: projectA, flavor: "hpc.2"},
		{uuid: id(6), server: "demo-vm3", project: projectA, flavor: "spec", specs: `<nova:extraSpecs><nova:extraSpec name="nearmetal:region">4MiB</nova:extraSpec></nova:extraSpecs>`},
	}
	do := func(n nova, op string) {
		t.Helper()
		if err := n.hook(t, p, op); err != nil {
			t.Fatalf("%s of %s: %v", op, n.uuid, err)
		}
	}
	do(a0, "prepare")
	list := p.memories(t)
	if len(list) != 1 {
		t.Fatalf("memories: %v", list)
	}
	f, err := os.OpenFile(list[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h, _, err := region.Read(f, 1<<20); err != nil || h.SizeBytes != 1<<20 {
		t.Errorf("%+v, %v", h, err)
	}
	if st, _ := f.Stat(); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	do(a1, "prepare")
	if got := p.memories(t); len(got) != 1 {
		t.Errorf("a group's second VM: %v", got)
	}
	for i, n := range others {
		do(n, "prepare")
		if got := p.memories(t); len(got) != i+2 {
			t.Errorf("%+v: %v", n, got)
		}
	}
	regions, err := p.List()
	if err != nil || len(regions) != 5 {
		t.Fatalf("%v, %v", regions, err)
	}
	f.WriteAt([]byte("secret"), 1<<19)
	do(a0, "release")
	b := make([]byte, 6)
	if f.ReadAt(b, 1<<19); string(b) != "secret" {
		t.Errorf("a region that a VM still has: %q", b)
	}
	do(a1, "release")
	if f.ReadAt(b, 1<<19); string(b) != "\x00\x00\x00\x00\x00\x00" {
		t.Errorf("after the last VM: %q", b)
	}
	for _, n := range others {
		do(n, "stopped")
		do(n, "release")
		do(n, "release")
	}
	if got := p.memories(t); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if regions, err := p.List(); len(regions) != 0 || err != nil {
		t.Errorf("left: %v, %v", regions, err)
	}
}

// TestHookRefuses: a VM that cannot have its promised region does not start, with an error; a VM without a promised
// region is not affected.
func TestHookRefuses(t *testing.T) {
	p := newPaths(t)
	base := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	for _, c := range []struct {
		change func(*nova)
		want   string
	}{
		{func(n *nova) { n.machine = "microvm" }, "a machine of type q35 or pc"},
		{func(n *nova) { n.machine = "pc-q35-7.2" }, "num_pcie_ports"},
		{func(n *nova) { n.specs = spec3("3MiB") }, "a power of two"},
		{func(n *nova) { n.specs = spec3("64Mb") }, "nearmetal:region"},
		{func(n *nova) { n.specs = spec3("65536GiB") }, "memory are asked for"},
	} {
		n := base
		c.change(&n)
		err := n.hook(t, p, "prepare")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.want)
		}
		if got := p.memories(t); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		if list, _ := p.List(); len(list) != 0 {
			t.Errorf("left: %v", list)
		}
	}
	base.flavor = "m1.tiny"
	for _, op := range []string{"prepare", "started", "release", "reconnect"} {
		if err := base.hook(t, p, op); err != nil {
			t.Errorf("%s of a flavor without a region: %v", op, err)
		}
	}
	if err := p.Hook("prepare", strings.NewReader("<domain/>")); err != nil {
		t.Errorf("a domain that is not Nova's: %v", err)
	}
	os.Remove(p.Config)
	base.flavor = "hpc.1"
	if err := base.hook(t, p, "prepare"); err != nil || len(p.memories(t)) != 0 {
		t.Errorf("without a configuration: %v", err)
	}
}

func spec3(size string) string {
	return `<nova:extraSpecs><nova:extraSpec name="nearmetal:region">` + size + `</nova:extraSpec></nova:extraSpecs>`
}

// TestSweep: the next operation removes the remains of a kill: doors, memory without a record, records without
// memory, VMs whose libvirtd has ended and that have no QEMU.
func TestSweep(t *testing.T) {
	p := newPaths(t)
	n := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	if err := n.hook(t, p, "prepare"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.openDoor(id(1)); err != nil {
		t.Fatal(err)
	}
	doors := func() []string { l, _ := filepath.Glob(p.Shared + "/nearmetal-*"); return l }
	if len(doors()) != 1 {
		t.Fatalf("doors: %v", doors())
	}
	if n, err := p.Sweep(); n != 0 || err != nil || len(doors()) != 1 {
		t.Errorf("a VM that starts: %d, %v, %v", n, err, doors())
	}
	r, _, _ := p.member(id(1))
	r.VMs[0].DaemonStart = "1" // another process had this PID
	if err := errors.Join(p.write(r), os.WriteFile(p.Memory+"/"+strings.Repeat("a", 32), []byte("x"), 0o600), os.WriteFile(p.Memory+"/other", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	gone := *r
	gone.Key = strings.Repeat("b", 32)
	if err := p.write(&gone); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Sweep(); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := p.memories(t); len(got) != 1 || filepath.Base(got[0]) != "other" || len(doors()) != 0 {
		t.Errorf("left: %v, %v", got, doors())
	}
}

// TestOwn: the region's owner becomes the user as whom libvirtd started the QEMU.
func TestOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65533}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	q, err := process.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := own(path, q, 64055); err == nil || !strings.Contains(err.Error(), "libvirtd started it as user 64055") {
		t.Errorf("%v", err)
	}
	for _, said := range []int{65534, -1} {
		if err := own(path, q, said); err != nil {
			t.Error(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != 65534 || st.Gid != 65533 {
		t.Errorf("%v: user %d, group %d", err, st.Uid, st.Gid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := own(path, q, -1); !errors.Is(err, process.ErrGone) {
		t.Errorf("%v", err)
	}
}

// TestPrivate: a directory that another user made in a world-writable place is rejected.
func TestPrivate(t *testing.T) {
	p := newPaths(t)
	n := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	for _, make := range []func() error{
		func() error { return errors.Join(os.Mkdir(p.Memory, 0o700), os.Chmod(p.Memory, 0o755)) },
		func() error { return os.Symlink(t.TempDir(), p.Memory) },
		func() error { return os.WriteFile(p.Memory, nil, 0o600) },
	} {
		os.RemoveAll(p.Memory)
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if err := n.hook(t, p, "prepare"); err == nil || !strings.Contains(err.Error(), "not a directory of this user's alone") {
			t.Errorf("%v", err)
		}
	}
}

// TestNode: the memory is on the node that Nova's placement selects.
func TestNode(t *testing.T) {
	p := newPaths(t)
	n := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1", tune: "<numatune><memory mode='strict' nodeset='0'/></numatune>"}
	if err := n.hook(t, p, "prepare"); err != nil {
		t.Fatal(err)
	}
	// A record without memory, as left by a kill, gets its memory with the next VM.
	os.Remove(p.memories(t)[0])
	n.uuid = id(3)
	if err := n.hook(t, p, "prepare"); err != nil || len(p.memories(t)) != 1 {
		t.Errorf("%v, %v", err, p.memories(t))
	}
	list, err := p.List()
	if err != nil || len(list) != 1 || list[0].Node != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	n.uuid, n.server, n.tune = id(2), "far-vm0", "<numatune><memory mode='strict' nodeset='77'/></numatune>"
	if err := n.hook(t, p, "prepare"); err == nil || !strings.Contains(err.Error(), "no NUMA node 77") {
		t.Errorf("%v", err)
	}
}

const envVictim = "NEARMETAL_TEST_NOVAREGION"

func TestMain(m *testing.M) {
	if v := os.Getenv(envVictim); v != "" {
		f := strings.Fields(v)
		left, _ := strconv.Atoi(f[0])
		change.OnStep(func() {
			if left--; left == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		})
		p := Paths{Config: f[1] + "/etc/config.json", HookFile: f[1] + "/etc/hooks/qemu.d/nearmetal-region", State: f[1] + "/state", Memory: f[1] + "/memory", Shared: f[1], Journal: f[1] + "/journal"}
		var err error
		step = func() {
			if left--; left == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		switch f[2] {
		case "install":
			_, err = p.install(config("/bin/true"))
		case "remove":
			_, err = p.Remove()
		case "plug":
			if _, _, err = p.openDoor(id(1)); err == nil {
				err = p.settle(id(1), errors.New("no libvirtd here"))
			}
		default:
			err = p.Hook(f[2], strings.NewReader(nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}.xml()))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilled: if the installation or removal is killed at any step, the hook and its configuration both exist or
// neither does once recovery has run, and other programs' files remain.
func TestKilled(t *testing.T) {
	for _, what := range []string{"install", "remove"} {
		for n, ended := 1, false; !ended; n++ {
			dir := t.TempDir()
			p := Paths{Config: dir + "/etc/config.json", HookFile: dir + "/etc/hooks/qemu.d/nearmetal-region", State: dir + "/state", Memory: dir + "/memory", Shared: dir, Journal: dir + "/journal"}
			other := dir + "/etc/hooks/qemu.d/other"
			if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o755), os.WriteFile(other, []byte("other"), 0o755)); err != nil {
				t.Fatal(err)
			}
			if what == "remove" {
				if _, err := p.install(config("/bin/true")); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", envVictim, n, dir, what))
			out, err := cmd.CombinedOutput()
			ended = err == nil
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err != nil && (!ok || ws.Signal() != syscall.SIGKILL) {
				t.Fatalf("step %d: %v: %s", n, err, out)
			}
			if _, err := change.Recover(p.Journal); err != nil {
				t.Fatal(err)
			}
			_, hook := os.Lstat(p.HookFile)
			_, conf := os.Lstat(p.Config)
			if (hook == nil) != (conf == nil) {
				t.Fatalf("%s, step %d: hook %v, configuration %v", what, n, hook, conf)
			}
			if text, err := os.ReadFile(other); string(text) != "other" {
				t.Fatalf("%s, step %d: another's hook: %q, %v", what, n, text, err)
			}
			if ended && (what == "install") != (hook == nil) {
				t.Fatalf("%s: hook %v", what, hook)
			}
			if least := map[string]int{"install": 7, "remove": 3}[what]; ended && n < least {
				t.Errorf("only %d steps", n)
			}
		}
	}
}

// TestHookKilled: if killed at any step, the hook and the processes it starts leave nothing that the domain's release
// does not remove. libvirt runs the release whenever a start fails, and at each end.
func TestHookKilled(t *testing.T) {
	n0 := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	for what, least := range map[string]int{"prepare": 2, "plug": 3, "release": 4} {
		for n, ended := 1, false; !ended; n++ {
			shared, err := os.MkdirTemp("/dev/shm", "nm-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(shared) })
			p := Paths{Config: shared + "/etc/config.json", HookFile: shared + "/etc/hooks/qemu.d/nearmetal-region", State: shared + "/state", Memory: shared + "/memory", Shared: shared, Journal: shared + "/journal"}
			if _, err := p.install(config("/bin/true")); err != nil {
				t.Fatal(err)
			}
			if what != "prepare" {
				if err := n0.hook(t, p, "prepare"); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", envVictim, n, shared, what))
			out, err := cmd.CombinedOutput()
			ended = err == nil
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err != nil && (!ok || ws.Signal() != syscall.SIGKILL) {
				t.Fatalf("%s, step %d: %v: %s", what, n, err, out)
			}
			if err := n0.hook(t, p, "release"); err != nil {
				t.Fatalf("%s, step %d: %v", what, n, err)
			}
			left, _ := filepath.Glob(shared + "/nearmetal-*")
			half, _ := filepath.Glob(shared + "/state/.*")
			left = append(left, half...)
			list, err := p.List()
			if len(left) != 0 || len(p.memories(t)) != 0 || len(list) != 0 || err != nil {
				t.Fatalf("%s, step %d: left %v, %v, %v, %v", what, n, left, p.memories(t), list, err)
			}
			if ended && n <= least {
				t.Errorf("%s: only %d steps", what, n)
			}
		}
	}
}

// TestInstallAgain: a second installation replaces the flavors and keeps the hook's age. Another program's hook of
// that name remains.
func TestInstallAgain(t *testing.T) {
	p := newPaths(t)
	before, err := p.ReadConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := config("/bin/true")
	c.Flavors = map[string]spec.Size{"new": 1 << 20}
	if fresh, err := p.install(c); fresh || err != nil {
		t.Fatal(fresh, err)
	}
	after, err := p.ReadConfig()
	if err != nil || !after.Installed.Equal(before.Installed) || len(after.Flavors) != 1 {
		t.Errorf("%+v, %v", after, err)
	}
	if did, err := p.Remove(); err != nil || len(did) == 0 {
		t.Errorf("%v, %v", did, err)
	}
	for _, path := range []string{p.HookFile, p.Config, p.State, p.Memory} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left: %s: %v", path, err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(p.HookFile), 0o755), os.WriteFile(p.HookFile, []byte("#!/bin/sh\nexit 0\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.install(config("/bin/true")); err == nil || !strings.Contains(err.Error(), "not nearmetal's") {
		t.Errorf("%v", err)
	}
	for _, bad := range []*Config{{Version: 1, Program: "nearmetal"}, {Version: 2, Program: "/bin/true"}, {Version: 1, Program: "/bin/true", Flavors: map[string]spec.Size{"x": 3 << 20}}, {Version: 1, Program: "/bin/true", Flavors: map[string]spec.Size{"a\nb": 1 << 20}}} {
		if err := bad.Check(); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// TestHookText: the hook's program runs nearmetal, and does not affect a start after nearmetal was removed.
func TestHookText(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "it's here")
	hook := filepath.Join(dir, "hook")
	if err := os.WriteFile(hook, []byte(hookText(program)), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		out, err := exec.Command("sh", hook, "dom", "prepare", "begin", "-").CombinedOutput()
		return fmt.Sprint(string(out), err)
	}
	if got := run(); got != "<nil>" {
		t.Errorf("without nearmetal: %q", got)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\"\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := run(); got != "host openstack-region hook dom prepare begin -\nexit status 3" {
		t.Errorf("%q", got)
	}
}

// TestLockFree: the lock is free after each operation, so that no operation here waits for another's lock.
func TestLockFree(t *testing.T) {
	p := newPaths(t)
	n := nova{uuid: id(1), server: "demo-vm0", project: projectA, flavor: "hpc.1"}
	for _, op := range []string{"prepare", "release"} {
		if err := n.hook(t, p, op); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(p.State + "/lock")
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("after %s: %v", op, err)
		}
		f.Close()
	}
}

// TestGroupOfServer: the hook assigns a cluster's servers to one group, regardless of their VMs' names.
func TestGroupOfServer(t *testing.T) {
	for _, vm := range []string{"vm0", "io-node", "a-b-c12"} {
		if name := openstack.ServerName("de-mo", vm); GroupOf(name) != "de-mo" {
			t.Errorf("%s is of group %s", name, GroupOf(name))
		}
	}
}
