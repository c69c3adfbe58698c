package sriov

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"nearmetal/test/outer"
)

// isolation: strict with all that a real host has and TCG has not: an inner VM by KVM, in huge pages, with a VF
// by VFIO. Its QEMU is in the jail, maps all of the VM's memory for the card, and leaves nothing behind.
func TestStrict(t *testing.T) {
	onDemand(t)
	fresh(t, strict)
}

// innerMemory in MiB, in pages of 2 MiB on the card's node.
const innerMemory = 384

func strict(l *lab, state string) {
	t, nm := l.T, outer.Nearmetal(l.T)
	pages := fmt.Sprint(innerMemory / 2)
	l.Sh("set -e; modprobe igb; modprobe kvm_amd; modprobe vfio-pci; ip link set eth0 up; ip addr add 10.78.1.1/16 dev eth0; " + nm + " device enable-vfs eth0 2" +
		"; echo " + pages + " >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")
	const count = "cat /sys/devices/system/node/node1/hugepages/hugepages-2048kB/"
	if got := l.Sh(count + "free_hugepages"); got != pages+"\n" {
		t.Fatalf("%q free huge pages, want %s", got, pages)
	}
	l.Step("two VFs, " + pages + " huge pages")
	cluster := fmt.Sprintf("isolation: strict\nvms: [{memory: %dMiB, vcpus: 1, devices: [{pf: eth0, count: 1}]}]\n"+
		"placement: {pages: 2MiB}\nregion: {size: 0}\nnetwork: {uplink: none}\n", innerMemory)
	began := time.Now()
	out, err := l.Try("cat >/tmp/c.yaml <<'E'\n"+cluster+"E\n"+nm+" up --name strict -f /tmp/c.yaml --no-share --boot-timeout 3m", innerVM)
	t.Logf("up with a VF, %.1f s:\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		// The inner VM not up is the outer host's clock, as a rule.
		outer.Stuck(fmt.Errorf("%w\n%s", err, l.Console()))
	}
	l.Step("the inner VM is up")
	var told struct{ VMs []struct{ PID int } }
	if err := json.Unmarshal([]byte(l.Sh(nm+" ps strict --json")), &told); err != nil || len(told.VMs) != 1 {
		t.Fatalf("%v, %+v", err, told)
	}
	qemu := fmt.Sprint("/proc/", told.VMs[0].PID)

	// KVM, huge pages and VFIO are in use, by a QEMU in its jail.
	args := l.Sh("tr '\\0' ' ' <" + qemu + "/cmdline")
	for _, w := range []string{"kvm", "vfio-pci", "hugetlb"} {
		if !strings.Contains(args, w) {
			t.Errorf("%q is not in %s", w, args)
		}
	}
	if got := l.Sh(count + "free_hugepages"); got != "0\n" {
		t.Errorf("%q huge pages are free while the VM runs", got)
	}
	status := l.Sh("cat " + qemu + "/status")
	for _, w := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"} {
		if !strings.Contains(status, w) {
			t.Errorf("%q is not in %s", w, status)
		}
	}
	for _, ns := range []string{"mnt", "pid", "ipc", "net"} {
		l.Sh("test $(readlink " + qemu + "/ns/" + ns + ") != $(readlink /proc/self/ns/" + ns + ")")
	}
	group := l.Sh("basename $(readlink /sys/bus/pci/devices/" + vf0 + "/iommu_group)")
	if got := l.Sh("cd " + qemu + "/root/dev && for f in * vfio/*; do if test -c $f; then printf '%s ' $f; fi; done"); got != "kvm null random urandom zero vfio/"+strings.TrimSpace(group)+" vfio/vfio " {
		t.Errorf("QEMU's devices are %s", got)
	}
	l.Sh("cd " + qemu + "/root && for f in etc/passwd home root run tmp var bin/sh usr/bin/sh dev/shm dev/mem; do test ! -e $f || { echo QEMU sees $f; exit 1; }; done")
	if got := l.Sh("ls -l " + qemu + "/fd"); !strings.Contains(got, "/vfio/") || !strings.Contains(got, "kvm-vm") {
		t.Errorf("QEMU's files: %s", got)
	}
	l.Step("QEMU is in its jail")

	got := l.Sh(nm + " exec -c strict --vm vm0 -- sh -c 'cat /run/nearmetal/devices; busybox ping -c 3 -W 30 10.78.1.1'")
	for _, w := range []string{"igbvf", " 0% packet loss"} {
		if !strings.Contains(got, w) {
			t.Errorf("%q is missing in %s", w, got)
		}
	}
	l.Step("ping over the VF")
	l.Sh(nm + " down strict")
	if _, vfs := l.list(nm); len(vfs) != 2 || vfs[0].Driver != "" || vfs[1].Driver != "" {
		t.Errorf("after the cluster: %+v %+v", vfs[0], vfs[1])
	}
	if got := l.Sh(count + "free_hugepages"); got != pages+"\n" {
		t.Errorf("%q free huge pages after the cluster, want %s", got, pages)
	}
	l.Step("all given back")
}
