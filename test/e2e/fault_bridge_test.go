package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bridgeFile writes a cluster file with the network that changes the host: taps on a bridge.
func bridgeFile(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("unshare", "--net", "ip", "tuntap", "add", "mode", "tap").CombinedOutput()
	if err != nil {
		what := "taps and bridges need root, /dev/net/tun, unshare and ip: " + strings.TrimSpace(string(out)) + " " + err.Error()
		if os.Getenv("CI") == "true" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	err = os.WriteFile(path, []byte("version: 1\nnetwork:\n  type: bridge\nvms:\n  - count: 2\n    memory: 256MiB\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A bridge is the one thing that outlives its maker: the journal sees to it.
func TestFaultBridge(t *testing.T) {
	file := bridgeFile(t)
	for _, f := range []struct {
		phase  string
		signal syscall.Signal
		quick  bool
	}{
		{"booting", unix.SIGKILL, true},
		{"booting", unix.SIGTERM, true},
		{"ready", unix.SIGKILL, false},
		{"ready", unix.SIGTERM, false},
		{"ending", unix.SIGKILL, false},
	} {
		if !f.quick && !soak() {
			continue
		}
		t.Run(f.phase+" "+f.signal.String(), func(t *testing.T) {
			p := newPlace(t)
			command := "exec sleep 12345"
			if f.phase == "ending" {
				command = "true"
			}
			v := p.start("run", "-f", file, "--name", "x", "--no-share", "--", "sh", "-c", command)
			v.reach("x", f.phase)
			if f.phase != "ending" && !strings.Contains(strings.Join(p.left(), " "), "interface nm-") {
				t.Errorf("no bridge while it runs: %v", p.left())
			}
			v.signal(f.signal)
			v.wantStatus(128 + int(f.signal))
			if f.signal != unix.SIGKILL {
				p.nothing()
				return
			}
			said := p.swept("x")
			if f.phase != "ending" && !strings.Contains(said, "network interface nm-") {
				t.Errorf("nothing is said of the bridge: %s", said)
			}
		})
	}
}
