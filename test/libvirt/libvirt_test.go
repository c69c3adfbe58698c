package libvirt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
		r := s.nm(append([]string{"up", "--name", "c"}, s.small("--vms", "2")...)...).want(1, "a domain of that name already", "--name")
		r.oneLine()
		s.nothing()
		if got := s.virsh("list", "--name").out; strings.TrimSpace(got) != "c-vm1" {
			t.Errorf("domains: %q", got)
		}
		s.virsh("destroy", "c-vm1").want(0)
	})
	t.Run("client killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("k")
		v.Process.Kill()
		v.Wait()
		s.ended() // by AUTODESTROY: nobody has swept
		s.nm("ps").want(0, "removed what cluster k left")
		s.nothing()
	})
	t.Run("QEMU killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("q")
		syscall.Kill(s.qemus()[0], syscall.SIGKILL)
		v.Wait()
		if v.ProcessState.ExitCode() != 1 || !strings.Contains(v.errs.String(), "its QEMU was killed") {
			t.Errorf("exit status %d: %s", v.ProcessState.ExitCode(), v.errs)
		}
		s.nothing()
	})
	t.Run("domain destroyed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("d")
		s.virsh("destroy", "d-vm0").want(0)
		v.Wait()
		if v.ProcessState.ExitCode() != 1 || !strings.Contains(v.errs.String(), "somebody ended its domain") {
			t.Errorf("exit status %d: %s", v.ProcessState.ExitCode(), v.errs)
		}
		s.nothing()
	})
	t.Run("daemon killed", func(t *testing.T) {
		s := s.with(t)
		s.up("r")
		s.host.kill()
		s.nm("exec", "-c", "r", "--", "true").want(0)
		s.host.start()
		s.nm("verify", "r").want(0) // over a new connection
		s.nm("pause", "r").want(0)
		s.nm("resume", "r").want(0)
		s.nm("down", "r").want(0)
		s.nothing()
		if got := s.virsh("list", "--all", "--name").out; strings.TrimSpace(got) != "" {
			t.Errorf("domains: %q", got)
		}
	})
	t.Run("client and daemon killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("b")
		s.host.kill()
		v.Process.Signal(syscall.SIGKILL)
		v.Wait()
		s.nm("ps").want(0, "removed what cluster b left") // with no daemon
		s.nothing()
		r := s.nm(append([]string{"up"}, s.small()...)...).want(1, "no libvirtd answers at qemu:///system", "systemctl start libvirtd")
		r.oneLine()
		s.nothing()
		s.host.start()
		if got := s.virsh("list", "--all", "--name").out; strings.TrimSpace(got) != "" {
			t.Errorf("domains: %q", got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := s.with(t)
		for _, c := range []struct{ flags, want string }{
			{"--isolation strict", "back end libvirt cannot put VMs' processes into namespaces of their own"},
			{"files: virtiofs", "back end libvirt cannot show files of this host by virtiofs"},
			{"network: {type: bridge, bridge: nothing0}", "nothing0"},
		} {
			args := append([]string{"up", "--name", "x"}, s.small()...)
			if strings.HasPrefix(c.flags, "-") {
				args = append(args, strings.Fields(c.flags)...)
			} else {
				file := filepath.Join(s.t.TempDir(), "cluster.yaml")
				os.WriteFile(file, []byte(c.flags+"\n"), 0o600)
				args = append(args, "-f", file)
			}
			r := s.nm(args...).want(1, c.want)
			r.oneLine()
			s.nothing()
		}
		s.nm("up", "--on", "libvirt:xen:///system").want(1, "qemu:///system or qemu:///session")
	})
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
	s.nm("explain", "--connect", uri, "c-vm0").want(1, "machine.accel")
	s.nm("check", "--connect", uri, "--domains", "--problems").want(1, "c-vm0 on ", "c-vm1 on ")
	s.nm("pause", "c").want(0)
	s.nm("resume", "c").want(0)
	s.nm("exec", "-c", "c", "-n", "--", "true").want(0)
	s.nm("restart", "c/vm0").want(1, "cannot be restarted")
	s.nm("ps").want(0, "libvirt")
	s.nm("down", "c").want(0)
	s.nothing()
	if got := s.virsh("list", "--all", "--name").out; strings.TrimSpace(got) != "" {
		t.Errorf("domains: %q", got)
	}
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

// A user's own libvirtd, which is started for it.
func TestUser(t *testing.T) {
	s := ofUser(t, "user", "XDG_RUNTIME_DIR=HOME/run")
	t.Run("life", func(t *testing.T) { s.with(t).life() })
	t.Run("client and daemon killed", func(t *testing.T) {
		s := s.with(t)
		v := s.start("b")
		syscall.Kill(daemonOf(t, filepath.Join(s.home, "run", "libvirt", "libvirtd.pid")), syscall.SIGKILL)
		v.Process.Kill()
		v.Wait()
		s.nm("ps").want(0, "removed what cluster b left")
		s.nothing()
	})
}

// A login without XDG_RUNTIME_DIR has its libvirtd, too, and one that has none to start gets a line that says so.
func TestUserWithoutRuntimeDir(t *testing.T) {
	s := ofUser(t, "plain")
	s.nm(append([]string{"run"}, s.small("--", "true")...)...).want(0)
	s.nothing()
	none := ofUser(t, "none", "XDG_RUNTIME_DIR=HOME/run", "LIBVIRTD_PATH=/nowhere/libvirtd")
	none.nm(append([]string{"run"}, none.small("--", "true")...)...).want(1, "none could be started").oneLine()
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
