package sriov

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/test/outer"
)

// An inner VM has a VF by a cluster file, by nested KVM, and pings the card over it; the VF is
// given back with the cluster; the power is cut while a VF is bound, and the next boot recovers.
func TestVM(t *testing.T) {
	onDemand(t)
	fresh(t, inVM)
}

func inVM(l *lab, state string) {
	t, nm := l.T, outer.Nearmetal(l.T)
	l.Sh("set -e; modprobe igb; modprobe kvm_amd; modprobe vfio-pci; ip link set eth0 up; ip addr add 10.78.1.1/16 dev eth0; " + nm + " device enable-vfs eth0 2")
	l.Step("two VFs")
	cluster := "vms: [{memory: 512MiB, vcpus: 1, devices: [{pf: eth0, count: 1}]}]\nregion: {size: 0}\n"
	began := time.Now()
	out, err := l.Try("cat >/tmp/c.yaml <<'E'\n"+cluster+"E\n"+nm+" run -f /tmp/c.yaml --no-share --boot-timeout 3m -- sh -c 'cat /run/nearmetal/devices; busybox ping -c 3 -W 30 10.78.1.1'", innerVM)
	t.Logf("run with a VF, %.1f s:\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		// The inner VM not up is the outer host's clock, as a rule.
		outer.Stuck(fmt.Errorf("%w\n%s", err, l.Console()))
	}
	for _, w := range []string{"igbvf", "10.78.0.1", " 0% packet loss"} {
		if !strings.Contains(out, w) {
			t.Errorf("%q is missing in %s", w, out)
		}
	}
	l.Step("ping over the VF")
	// Given back with the cluster's end; only enable-vfs is in force.
	if _, vfs := l.list(nm); len(vfs) != 2 || vfs[0].Driver != "" || vfs[1].Driver != "" {
		t.Errorf("after the cluster: %+v %+v", vfs[0], vfs[1])
	}

	// The power goes while a VF is handed over: nothing of it is there after the next boot, and
	// recovery has nothing to do that the reboot has not done.
	l.cutDuring(nm+" device bind "+vf0+" --user nobody", state)
	l.Step("power cut")
	l = boot(t, state)
	defer l.Kill()
	l.Sh("modprobe igb && " + nm + " host recover")
	if _, vfs := l.list(nm); len(vfs) != 0 {
		t.Errorf("%d VFs after a reboot", len(vfs))
	}
	l.Sh(nm + " device enable-vfs eth0 1 && " + nm + " device disable-vfs eth0")
	l.Step("recovered")
}

// cutDuring ends the outer host, as a power cut would, as soon as a command has opened its journal in the
// directory state: before it has changed anything, or half way.
func (l *lab) cutDuring(command, state string) {
	l.T.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		l.T.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, state, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		l.T.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { l.Try(command, outer.StepTimeout); close(ended) }()
	// QEMU writes what the outer host does to its 9p share here, so the watch sees it.
	for buf := make([]byte, 4096); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(outer.StepTimeout.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			l.T.Fatalf("%s: no journal was opened (%v)", command, err)
		}
		if n, _ = unix.Read(fd, buf); strings.Contains(string(buf[:max(n, 0)]), ".open\x00") {
			break
		}
	}
	l.Kill()
	<-ended
	if open, _ := filepath.Glob(state + "/*.open"); len(open) != 1 {
		l.T.Fatalf("%s: not cut half way: %q", command, open)
	}
}
