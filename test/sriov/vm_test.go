package sriov

import (
	"strings"
	"testing"
	"time"
)

// An inner VM has a VF by a cluster file, by nested KVM: it pings the card over it and has
// soft RoCE on it; two clusters that want the last VF; a power cut half way.
func TestVM(t *testing.T) {
	onDemand(t)
	state := t.TempDir()
	if !inVM(t, state) {
		// About one outer host in seven has timers that misbehave: a fresh one, once.
		t.Log("again, from a fresh outer host")
		state = t.TempDir()
		if !inVM(t, state) {
			t.Fatal("twice")
		}
	}
}

// inVM is TestVM; false: the outer host was not up to it.
func inVM(t *testing.T, state string) bool {
	nm := nearmetal(t)
	l, err := tryBoot(t, state)
	if err != nil {
		t.Log(err)
		return false
	}
	defer l.kill()
	if out, err := l.try("set -e; modprobe igb; modprobe kvm_amd; modprobe vfio-pci; ip link set eth0 up; ip addr add 10.78.1.1/16 dev eth0; " + nm + " device enable-vfs eth0 2"); err != nil {
		t.Logf("%s%v", out, err)
		return false
	}
	l.step("two VFs")
	cluster := "vms: [{memory: 512MiB, vcpus: 1, devices: [{pf: eth0, count: 1}]}]\nregion: {size: 0}\n"
	began := time.Now()
	out, err := l.try("cat >/tmp/c.yaml <<'E'\n" + cluster + "E\n" + nm + " run -f /tmp/c.yaml --no-share --boot-timeout 3m -- sh -c 'cat /run/nearmetal/devices; busybox ping -c 3 -W 30 10.78.1.1'")
	t.Logf("run with a VF, %.1f s:\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		t.Logf("%v\n%s", err, l.console())
		return false
	}
	for _, w := range []string{"igbvf", "10.78.0.1", " 0% packet loss"} {
		if !strings.Contains(out, w) {
			t.Errorf("%q is missing in %s", w, out)
		}
	}
	l.step("ping over the VF")
	// Given back with the cluster's end; only enable-vfs is in force.
	if _, vfs := l.list(nm); len(vfs) != 2 || vfs[0].Driver != "" || vfs[1].Driver != "" {
		t.Errorf("after the cluster: %+v %+v", vfs[0], vfs[1])
	}

	// The power goes while a VF is handed over: nothing of it is there after the next boot, and
	// recovery has nothing to do that the reboot has not done.
	l.sh(nm + " device bind 0000:41:10.0 --user nobody & until ls /var/lib/nearmetal/*bind*.open >/dev/null 2>&1; do :; done; sync")
	l.kill()
	l.step("power cut")
	l, err = tryBoot(t, state)
	if err != nil {
		t.Log(err)
		return false
	}
	defer l.kill()
	l.sh("modprobe igb && " + nm + " host recover")
	if _, vfs := l.list(nm); len(vfs) != 0 {
		t.Errorf("%d VFs after a reboot", len(vfs))
	}
	l.sh(nm + " device enable-vfs eth0 1 && " + nm + " device disable-vfs eth0")
	l.step("recovered")
	return true
}
