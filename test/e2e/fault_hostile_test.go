package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/console"
)

// growth is how much larger the owner of a cluster may become by what a guest sends it, in
// KiB: the queues of four channels, and the collector's slack.
const growth = 48 << 10

// hostile builds testdata/hostile.c.
func hostile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile")
	out, err := exec.Command("gcc", "-std=c11", "-O2", "-static", "-o", path, "testdata/hostile.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}

// peak is the most memory that a process has had, in KiB; 0 when it is gone.
func peak(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// consoleBounded fails if the log of a VM's console is longer than it may be.
func (p *place) consoleBounded(name, vm string) {
	p.t.Helper()
	fi, err := os.Stat(filepath.Join(p.dir, name, "console-"+vm+".log"))
	if err == nil && fi.Size() > console.LogMax {
		p.t.Errorf("the console's log has %d bytes", fi.Size())
	}
}

// A VM whose /init is not ours: a build of nearmetal with another agent in it starts them.
func TestFaultHostileInit(t *testing.T) {
	dir := t.TempDir()
	// Go 1.23 embeds the folder's own files whatever an overlay says, so the source that embeds it is replaced.
	source, err := filepath.Abs("../../internal/guest/image/agent.go")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "agent.go")
	write(t, dir, "agent.go", fmt.Sprintf("package image\n\nimport \"os\"\n\nfunc Agent() ([]byte, error) { return os.ReadFile(%q) }\n", hostile(t)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: other}})
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
	program := filepath.Join(dir, "nearmetal")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../../cmd/nearmetal")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range []struct{ mode, why string }{
		{"garbage", "vm0: the channel failed: the other side sent "},
		{"flood", "vm0: the channel failed: peer stopped reading"},
		{"console", "the VMs were not ready after 10s"},
	} {
		t.Run(f.mode, func(t *testing.T) {
			p := newPlace(t)
			file := filepath.Join(t.TempDir(), "cluster.yaml")
			os.WriteFile(file, []byte("version: 1\nkernelArgs: [hostile="+f.mode+"]\n"), 0o644)
			args := []string{"run", "-f", file, "--name", "x", "--memory", "128MiB", "--no-share"}
			if f.mode == "console" {
				args = append(args, "--boot-timeout", "10s")
			}
			v := p.launch(p.program(program, append(args, "--", "true")...))
			v.reach("x", "booting") // the kernel is unpacked by now, which takes more memory than all else
			before, most := peak(v.cmd.Process.Pid), 0
			for running := true; running; {
				most = max(most, peak(v.cmd.Process.Pid))
				p.consoleBounded("x", "vm0")
				select {
				case <-v.ended:
					running = false
				case <-time.After(10 * time.Millisecond):
				}
			}
			v.wantStatus(125, f.why)
			t.Logf("peak %d KiB, %d KiB before", most, before)
			if most-before > growth {
				t.Errorf("it grew from %d to %d KiB", before, most)
			}
			for _, line := range strings.Split(v.errs.String(), "\n") {
				if strings.ContainsAny(line, "\x1b\x07") {
					t.Errorf("a control sequence of the guest's came out: %q", line)
				}
			}
			p.nothing()
		})
	}
}

// Root of a VM turns against its host; the other VMs do not notice.
func TestFaultHostileRoot(t *testing.T) {
	program := hostile(t)
	p := newPlace(t)
	p.up("x", "--vms", "4")
	r := p.record("x")
	before := peak(r.Owner)
	attack := func(vm, mode string) *victim {
		return p.start("exec", "-c", "x", "--vm", vm, "--as-root", "--", program, mode)
	}
	con := attack("vm1", "console")
	attack("vm3", "frozen").wantStatus(125, "vm3: the channel failed: the other side sent ")
	if code := attack("vm2", "flood").wait(); code != 0 && code != 125 {
		t.Errorf("flood: status %d", code)
	}
	p.isDead("x", "vm3")
	for _, vm := range []string{"vm0", "vm1"} {
		finish(t, p.command("exec", "-c", "x", "--vm", vm, "hostname"), "").want(t, 0, vm)
	}
	until(t, "the flood in vm1's log", func() bool {
		fi, err := os.Stat(filepath.Join(p.dir, "x", "console-vm1.log"))
		p.consoleBounded("x", "vm1")
		return err != nil || fi.Size() > 8<<10
	})
	logs := finish(t, p.command("logs", "x", "--vm", "vm1"), "").want(t, 0, "hostile")
	if strings.ContainsAny(logs.out, "\x1b\x07") || len(logs.out) > 2*console.LogMax {
		t.Errorf("logs: %d bytes, or control sequences", len(logs.out))
	}
	after := peak(r.Owner)
	t.Logf("peak %d KiB, %d KiB before", after, before)
	if after == 0 || after-before > growth {
		t.Errorf("the supervisor grew from %d to %d KiB", before, after)
	}
	if soak() { // a QEMU that does nothing any more holds nobody up for ever
		unix.Kill(r.VMs[0].PID, unix.SIGSTOP)
	}
	finish(t, p.command("down", "x"), "").want(t, 0)
	con.wait()
	p.nothing()
}
