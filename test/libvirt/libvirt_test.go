package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A cluster of root's on the host's libvirtd: seen in virsh, as planned, with MPI over the region. Then everything is
// killed that can be, in turns. Nothing is left, and what others have there is left alone.
func TestHost(t *testing.T) {
	s := ofHost(t)
	other := filepath.Join(s.home, "other.xml")
	os.WriteFile(other, []byte(`<domain type='qemu'><name>c-vm1</name><memory unit='MiB'>64</memory><os><type machine='q35'>hvm</type></os><devices><memballoon model='none'/></devices></domain>`), 0o600)

	t.Run("life", func(t *testing.T) { s.with(t).life() })
	t.Run("name taken", func(t *testing.T) {
		s := s.with(t)
		s.virsh("create", other).want(0)
		defer func() { s.virsh("destroy", "c-vm1").want(0) }()
		r := s.nm(append([]string{"up", "--name", "c"}, s.small("--vms", "2")...)...).want(125, "a domain of that name already", "--name")
		r.oneLine()
		s.nothing()
		if got := s.virsh("list", "--name").out; strings.TrimSpace(got) != "c-vm1" {
			t.Errorf("domains: %q", got)
		}
	})
	t.Run("others", func(t *testing.T) {
		s := s.with(t)
		s.virsh("create", other).want(0)
		defer func() { s.virsh("destroy", "c-vm1").want(0) }()
		s.others()
	})
	t.Run("define", func(t *testing.T) { s.with(t).define() })
	t.Run("client killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("k")
		v.Process.Kill()
		v.Wait()
		s.ended() // by AUTODESTROY: nobody has swept
		s.nm("ps").want(0, "removed what cluster k left")
		s.nothing()
	})
	t.Run("QEMU killed", func(t *testing.T) { s.with(t).member().killed("q") })
	t.Run("daemon killed, and the client", func(t *testing.T) {
		s := s.with(t)
		s.up("r", "-f", s.file("region: {size: 64MiB, device: devdax}"))
		s.host.kill()
		s.nm("exec", "-c", "r", "--", "test", "-c", "/dev/nearmetal/region").want(0)
		s.host.start()
		s.nm("verify", "r").want(0, "devdax") // over a new connection
		s.nm("pause", "r").want(0)
		s.nm("resume", "r").want(0)
		owner := s.owner("r")
		s.stranger(strings.TrimSpace(s.virsh("domuuid", "r-vm0").want(0).out))
		s.host.kill()
		kill(t, owner)
		s.nm("ps").want(0, "removed what cluster r left") // with no daemon
		s.nothing()
		s.nm(append([]string{"up"}, s.small()...)...).want(125, "no libvirtd answers at qemu:///system", "systemctl start libvirtd").oneLine()
		s.nothing()
		s.host.start()
		s.forgotten()
	})
	t.Run("refused", func(t *testing.T) {
		s := s.with(t)
		net := filepath.Join(s.home, "net.xml")
		os.WriteFile(net, []byte("<network><name>down</name><bridge name='nmdown0'/></network>"), 0o600)
		s.virsh("net-define", net).want(0)
		s.refused([][2]string{
			{"isolation: strict", "backend libvirt cannot put VMs' processes into namespaces of their own"},
			{"files: virtiofs", "backend libvirt cannot show files of this host by virtiofs"},
			{"network: {type: bridge, bridge: nmdown0}", "there is no bridge nmdown0; make it (ip link add nmdown0 type bridge), start the network of libvirt's that has it (virsh net-start)"},
		})
		s.nm("up", "--on", "libvirt:xen:///system").want(125, "qemu:///system or qemu:///session")
	})
}

// refused starts clusters of files that no domain can be: one line says so, and nothing is left.
func (s *site) refused(list [][2]string) {
	s.t.Helper()
	for _, c := range list {
		s.nm(append([]string{"up", "--name", "x", "-f", s.file(c[0])}, s.small()...)...).want(125, c[1]).oneLine()
		s.nothing()
	}
}

// killed starts a cluster, and kills its QEMU.
func (s *site) killed(name string) {
	s.t.Helper()
	v := s.start(name)
	syscall.Kill(s.qemus()[0], syscall.SIGKILL)
	v.Wait()
	if v.ProcessState.ExitCode() != 125 || !strings.Contains(v.errs.String(), "its QEMU was killed") {
		s.t.Errorf("exit status %d: %s", v.ProcessState.ExitCode(), v.errs)
	}
	s.nothing()
}

// member is an ordinary user who comes to the host's libvirtd: at first outside of its socket's group, then in it.
func (s *site) member() *site {
	s.t.Helper()
	m := ofUser(s.t, "member", "XDG_RUNTIME_DIR=HOME/run")
	m.host, m.on = s.host, s.on
	sock := s.host.dir + "/libvirt-sock"
	if err := os.Chmod(sock, 0o700); err != nil {
		s.t.Fatal(err)
	}
	m.nm(append([]string{"up"}, m.small()...)...).want(125, "may not be reached", "be in the group that its socket belongs to").oneLine()
	m.nothing()
	if err := errors.Join(os.Chown(sock, 0, m.uid), os.Chmod(sock, 0o770)); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// with is the site in a subtest.
func (s *site) with(t *testing.T) *site {
	c := *s
	c.t = t
	if s.host != nil {
		s.host.t = t
	}
	return &c
}

// life is what works on every libvirtd.
func (s *site) life() {
	t := s.t
	t.Helper()
	s.up("c", "--vms", "2", "--region", "64MiB")
	if got := strings.Fields(s.virsh("list", "--name").out); len(got) != 2 || got[0] == got[1] || !strings.HasPrefix(got[0], "c-vm") {
		t.Errorf("domains: %q", got)
	}
	s.virsh("dumpxml", "c-vm0").want(0, "nearmetal: vm0 of cluster c")
	var rows struct{ Rows []struct{ OK bool } }
	r := s.nm("verify", "c", "--json").want(0)
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || len(rows.Rows) < 10 {
		t.Errorf("verify: %v: %s", err, r.out)
	}
	// Over the VMs' network: vm1 answers that nobody listens.
	s.nm("exec", "-c", "c", "--vm", "vm0", "--", "timeout", "60", "bash", "-c", "echo >/dev/tcp/vm1/9").want(1, "refused")
	if s.uid == 0 {
		s.finish(s.command("sh", "-c", `eval "$("$0" env c)" && exec mpirun.openmpi -n 2 "$1"/nm_cg --grid 32`, s.program, kernels)).want(0, "checksum")
	}
	// As anybody's domain, too.
	uri := s.on
	if s.host == nil {
		uri = "qemu:///session"
	}
	s.nm("verify", "--connect", uri, "--domain", "c-vm0").want(0, "as planned")
	s.nm("explain", "--connect", uri, "c-vm0").want(3, "machine.accel")
	s.nm("check", "--connect", uri, "--domains", "--problems").want(3, "c-vm0 on ", "c-vm1 on ")
	s.nm("pause", "c").want(0)
	s.nm("resume", "c").want(0)
	s.nm("exec", "-c", "c", "-n", "--", "true").want(0)
	s.nm("restart", "c/vm0").want(125, "cannot be restarted")
	s.nm("ps").want(0, "libvirt")
	s.nm("down", "c").want(0)
	s.nothing()
	if got := s.virsh("list", "--all", "--name").out; strings.TrimSpace(got) != "" {
		t.Errorf("domains: %q", got)
	}
}

// others is a look at c-vm1, a domain of somebody else's that has no plan: it is compared with its own XML.
func (s *site) others() {
	s.t.Helper()
	verify := []string{"verify", "--connect", s.on, "--domain", "c-vm1"}
	s.nm(verify...).want(0, "c-vm1", "vCPUs", "as planned")
	// What is not as the XML says is found: somebody lets the vCPU float elsewhere than its pin.
	s.virsh("vcpupin", "c-vm1", "0", "0").want(0)
	s.nm(verify...).want(0, "as planned")
	if s.floats(s.qemu("c-vm1")) {
		s.nm(verify...).want(3, "differ")
	}
	s.nm("check", "--connect", s.on, "--domain", "c-vm1", "--problems").want(3, "c-vm1 on ", "machine.accel")
	s.nm("explain", "--connect", s.on, "--fix", filepath.Join(s.home, "c.xml"), "--define", "c-vm1").want(125, "is transient").oneLine()
}

// floats lets all threads of a process run on every CPU; false: this host cannot.
func (s *site) floats(pid int) bool {
	s.t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, dir := range tasks {
		tid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			s.t.Fatal(err)
		}
		// libvirtd keeps each thread in a cpuset, where it has one.
		os.WriteFile("/sys/fs/cgroup/cpuset/tasks", []byte(filepath.Base(dir)), 0)
		var all unix.CPUSet
		for cpu := range runtime.NumCPU() {
			all.Set(cpu)
		}
		if err := unix.SchedSetaffinity(tid, &all); err != nil {
			s.t.Fatal(err)
		}
		if unix.SchedGetaffinity(tid, &all) != nil || all.Count() < 2 {
			return false
		}
	}
	return true
}

// define changes a domain's XML when it is asked to, and can take that back.
func (s *site) define() {
	t := s.t
	t.Helper()
	file := filepath.Join(s.home, "d.xml")
	os.WriteFile(file, []byte(`<domain type='qemu'><name>d</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type machine='q35'>hvm</type></os>
<devices><input type='tablet' bus='usb'/><graphics type='vnc' passwd='tell0one'/></devices></domain>`), 0o600)
	s.virsh("define", file).want(0)
	defer func() { s.virsh("undefine", "d").want(0) }()
	s.pool()
	was := s.virsh("dumpxml", "--inactive", "--security-info", "d").out
	fixed := filepath.Join(s.home, "fixed.xml")
	explain := []string{"explain", "--connect", s.on, "--fix", fixed, "--define", "d"}
	s.nm(explain...).want(0, "fixed machine.usb", "defined d anew", "virsh define "+fixed+".old")
	now := s.virsh("dumpxml", "--inactive", "--security-info", "d").want(0, "<memballoon model='none'/>", "passwd='tell0one'").out
	if strings.Contains(now, "tablet") || !strings.Contains(was, "tablet") {
		t.Errorf("before\n%s\nafter\n%s", was, now)
	}
	for _, path := range []string{fixed, fixed + ".old"} {
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	s.nm(explain...).want(125, "is there already").oneLine() // nothing is overwritten
	s.virsh("define", fixed+".old").want(0)
	if back := s.virsh("dumpxml", "--inactive", "--security-info", "d").out; back != was {
		t.Errorf("before\n%s\ntaken back\n%s", was, back)
	}
}

// pool asks of a domain whose network card is a VF of a network: only libvirtd knows that it is.
func (s *site) pool() {
	s.t.Helper()
	if s.uid != 0 {
		return // a user's own libvirtd has no networks of devices
	}
	network, file := filepath.Join(s.home, "vfs.xml"), filepath.Join(s.home, "p.xml")
	os.WriteFile(network, []byte(`<network><name>vfs</name><forward mode='hostdev' managed='yes'><pf dev='nmpf0'/></forward></network>`), 0o600)
	os.WriteFile(file, []byte(`<domain type='qemu'><name>p</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type machine='q35'>hvm</type></os>
<devices><interface type='network'><source network='vfs'/></interface></devices></domain>`), 0o600)
	s.virsh("net-define", network).want(0)
	s.virsh("define", file).want(0)
	s.nm("explain", "--connect", s.on, "p").want(3, "a VF of network vfs")
	s.nm("explain", file).want(3, "network vfs, which may be a pool of VFs")
	s.virsh("undefine", "p").want(0)
	s.virsh("net-undefine", "vfs").want(0)
}

// ended waits until no domain's QEMU runs.
func (s *site) ended() {
	s.t.Helper()
	for end := time.Now().Add(bound / 4); len(s.qemus()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("QEMUs: %v", s.qemus())
		}
	}
}

// forgotten waits until the daemon lists no domain: one that starts finds out in a thread of its own which QEMUs have gone.
func (s *site) forgotten() {
	s.t.Helper()
	for end := time.Now().Add(bound / 4); ; time.Sleep(20 * time.Millisecond) {
		got := s.virsh("list", "--all", "--name").want(0).out
		if strings.TrimSpace(got) == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("domains: %q", got)
		}
	}
}

// A user's own libvirtd, which is started for it.
func TestUser(t *testing.T) {
	s := ofUser(t, "user", "XDG_RUNTIME_DIR=HOME/run")
	t.Run("life", func(t *testing.T) { s.with(t).life() })
	t.Run("refused", func(t *testing.T) {
		s.with(t).refused([][2]string{
			{"vms: [{count: 1, devices: [{type: pci, address: '0000:00:1f.0'}]}]", "backend libvirt cannot pass devices of the host through, which devices of vm needs: the user's own libvirtd may not lock"},
			{"files: virtiofs", "backend libvirt cannot show files of this host by virtiofs"},
		})
	})
	t.Run("client and daemon killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("b")
		kill(t, daemonOf(t, filepath.Join(s.home, "run", "libvirt", "libvirtd.pid")))
		v.Process.Kill()
		v.Wait()
		s.nm("ps").want(0, "removed what cluster b left")
		s.nothing()
	})
}

// A login without XDG_RUNTIME_DIR has its libvirtd, too, whose domains virsh ends. One that has none to start gets a
// line that says so.
func TestUserWithoutRuntimeDir(t *testing.T) {
	s := ofUser(t, "plain")
	v := s.start("d")
	s.virsh("destroy", "d-vm0").want(0)
	v.Wait()
	if v.ProcessState.ExitCode() != 125 || !strings.Contains(v.errs.String(), "somebody ended its domain") {
		t.Errorf("exit status %d: %s", v.ProcessState.ExitCode(), v.errs)
	}
	s.nothing()
	none := ofUser(t, "none", "XDG_RUNTIME_DIR=HOME/run", "LIBVIRTD_PATH=/nowhere/libvirtd")
	none.nm(append([]string{"run"}, none.small("--", "true")...)...).want(125, "none could be started").oneLine()
	none.nothing()
}

// daemonOf reads the number of a daemon's process.
func daemonOf(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, c := range strings.TrimSpace(string(text)) {
		pid = pid*10 + int(c-'0')
	}
	return pid
}
