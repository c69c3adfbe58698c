package sriov

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"nearmetal/test/outer"
)

// A VM with a VF is started again: the VF stays bound and claimed meanwhile, and the new QEMU has it.
func TestRestart(t *testing.T) {
	onDemand(t)
	fresh(t, restart)
}

func restart(l *lab, _ string) {
	t, nm := l.T, outer.Nearmetal(l.T)
	l.Sh("set -e; modprobe igb; modprobe kvm_amd; modprobe vfio-pci; ip link set eth0 up; ip addr add 10.78.1.1/16 dev eth0; " + nm + " device enable-vfs eth0 2")
	l.Step("two VFs")
	const cluster = "vms: [{memory: 512MiB, vcpus: 1, devices: [{pf: eth0, count: 1}]}]\nregion: {size: 0}\nnetwork: {uplink: none}\n"
	wait := func(what, command string) {
		began := time.Now()
		out, err := l.Try(command, innerVM)
		t.Logf("%s, %.1f s:\n%s", what, time.Since(began).Seconds(), out)
		if err != nil {
			// The inner VM not up is the outer host's clock, as a rule.
			outer.Stuck(fmt.Errorf("%s: %w\n%s", what, err, l.Console()))
		}
		l.Step(what)
	}
	// pinged is the VM's process, once it has the VF and reaches the card's other end over it.
	pinged := func() int {
		var found struct{ VMs []struct{ PID int } }
		if err := json.Unmarshal([]byte(l.Sh(nm+" ps again --json")), &found); err != nil || len(found.VMs) != 1 || found.VMs[0].PID == 0 {
			t.Fatalf("%v, %+v", err, found)
		}
		l.Sh(fmt.Sprintf("ls -l /proc/%d/fd | grep -q /vfio/", found.VMs[0].PID))
		if _, vfs := l.list(nm); len(vfs) != 2 || vfs[0].Driver != "vfio-pci" || vfs[1].Driver != "" {
			t.Errorf("while the VM runs: %+v %+v", vfs[0], vfs[1])
		}
		got := l.Sh(nm + " exec again/vm0 -- sh -c 'cat /run/nearmetal/devices; busybox ping -c 3 -W 30 10.78.1.1'")
		for _, w := range []string{"igbvf", "10.78.0.1", " 0% packet loss"} {
			if !strings.Contains(got, w) {
				t.Errorf("%q is missing in %s", w, got)
			}
		}
		return found.VMs[0].PID
	}
	wait("up with a VF", "cat >/tmp/c.yaml <<'E'\n"+cluster+"E\n"+nm+" up --name again -f /tmp/c.yaml --no-share --boot-timeout 3m")
	before := pinged()
	l.Step("ping over the VF")
	wait("restart", nm+" restart again/vm0")
	if after := pinged(); after == before {
		t.Errorf("process %d is still the VM", after)
	}
	l.Step("ping over the VF again")
	l.Sh(nm + " down again")
	if _, vfs := l.list(nm); len(vfs) != 2 || vfs[0].Driver != "" || vfs[1].Driver != "" {
		t.Errorf("after the cluster: %+v %+v", vfs[0], vfs[1])
	}
}
