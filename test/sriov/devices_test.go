package sriov

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"nearmetal/internal/host/device"
	"nearmetal/test/outer"
)

// list returns the devices of the outer host, as nearmetal reports them.
func (l *lab) list(nm string) (pf *device.Function, vfs []*device.Function) {
	l.T.Helper()
	var all []*device.Function
	if err := json.Unmarshal([]byte(l.Sh(nm+" device list --json")), &all); err != nil {
		l.T.Fatal(err)
	}
	for _, f := range all {
		switch f.Kind {
		case device.PF:
			pf = f
		case device.VF:
			vfs = append(vfs, f)
		}
	}
	if pf == nil {
		l.T.Fatalf("no physical function among %d devices", len(all))
	}
	return pf, vfs
}

// journals fails unless nothing is left to undo.
func (l *lab) journals(state string) {
	l.T.Helper()
	entries, err := os.ReadDir(state)
	if err != nil {
		l.T.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".open") || strings.HasSuffix(e.Name(), ".done") {
			b, _ := os.ReadFile(state + "/" + e.Name())
			l.T.Errorf("left in the journals: %s: %s", e.Name(), b)
		}
	}
}

const (
	vf0 = "0000:41:10.0"
	vf1 = "0000:41:10.2"
)

// The kernel's own paths, without an inner VM: VFs made, handed over, given back, their
// attributes set and set back, taken away; and a kill in the middle.
func TestDevices(t *testing.T) { fresh(t, devices) }

func devices(l *lab, state string) {
	t, nm := l.T, outer.Nearmetal(l.T)
	l.Sh("modprobe igb && ip link set eth0 up")
	pf, vfs := l.list(nm)
	if pf.TotalVFs != 7 || len(vfs) != 0 || pf.Driver != "igb" || pf.Node != 1 || pf.Group < 0 || pf.Link != "ethernet" {
		t.Errorf("%+v, %d VFs", pf, len(vfs))
	}
	l.Refused(nm+" device bind 00:1f.0", "is a bridge")

	l.Sh(nm + " device enable-vfs eth0 2")
	l.Step("two VFs")
	_, vfs = l.list(nm)
	if len(vfs) != 2 || vfs[0].Address != vf0 || vfs[1].Address != vf1 || vfs[0].Group == vfs[1].Group || vfs[0].Driver != "" {
		t.Fatalf("%+v", vfs)
	}
	l.Refused(nm+" device enable-vfs eth0 3", "has 2 VFs")
	l.Refused(nm+" device bind "+pf.Address, "has 2 VFs")

	l.Sh(nm + " device bind " + vf0 + " --user nobody")
	if got := l.Sh("stat -c '%U %a' /dev/vfio/[0-9]* && ls -l /dev/vfio/vfio | cut -c1-10"); got != "nobody 600\ncrw-rw-rw-\n" {
		t.Errorf("the group's file: %q", got)
	}
	l.Sh(nm + " device release " + vf0)
	if got := l.Sh("ls /dev/vfio; cat /sys/bus/pci/devices/" + vf0 + "/driver_override"); got != "vfio\n(null)\n" {
		t.Errorf("after release: %q", got)
	}
	l.Step("bound and released")
	l.usersInTurn(nm, vfs)

	// Soft RoCE on the card, and what the host uses is refused.
	l.Sh("modprobe rdma_rxe; modprobe ib_uverbs; ip addr add 10.9.0.1/24 dev eth0; rdma link add rxe0 type rxe netdev eth0")
	if got := l.Sh("ibv_devinfo -d rxe0"); !strings.Contains(got, "PORT_") {
		t.Errorf("ibv_devinfo: %s", got)
	}
	l.Sh("rdma link delete rxe0")
	l.Step("soft RoCE on the card")

	before := l.Sh("ip link show eth0 | grep 'vf 0'")
	l.Sh(nm + " device set " + vf0 + " --vlan 100 --spoofcheck off --rate 100")
	if got := l.Sh("ip link show eth0 | grep 'vf 0'"); !strings.Contains(got, "vlan 100") || !strings.Contains(got, "spoof checking off") {
		t.Errorf("set: %s", got)
	}
	l.Sh(nm + " device release " + vf0)
	if got := l.Sh("ip link show eth0 | grep 'vf 0'"); got != before {
		t.Errorf("%q before, %q after release", before, got)
	}
	l.Step("attributes set and set back")

	l.Sh(nm + " device disable-vfs eth0")
	if _, vfs := l.list(nm); len(vfs) != 0 {
		t.Errorf("%d VFs after disable-vfs", len(vfs))
	}
	l.journals(state)
	l.Step("VFs gone")

	// Killed while the VFs are made: recovery takes them away, and lets drivers probe again.
	l.Sh(nm + ` device enable-vfs eth0 2 & pid=$!
		until ls /var/lib/nearmetal/*enable-vfs*.open >/dev/null 2>&1; do :; done; kill -9 $pid; wait $pid 2>/dev/null; ` + nm + ` host recover`)
	if got := l.Sh("cat /sys/bus/pci/devices/" + pf.Address + "/sriov_numvfs /sys/bus/pci/devices/" + pf.Address + "/sriov_drivers_autoprobe"); got != "0\n1\n" {
		t.Errorf("after recovery: %q", got)
	}
	l.journals(state)
	l.Step("killed and recovered")
}

// Both VFs in use by the host, igbvf in two network namespaces: ping between them, soft RoCE on
// one, and they are not taken from the host meanwhile.
func TestNamespaces(t *testing.T) { fresh(t, namespaces) }

func namespaces(l *lab, state string) {
	t, nm := l.T, outer.Nearmetal(l.T)
	l.Sh("modprobe igb && ip link set eth0 up && " + nm + " device enable-vfs eth0 2")
	mac := l.Sh("ip link show eth0 | grep 'vf 0'")

	l.Sh(`set -e; modprobe igbvf
		for vf in ` + vf0 + " " + vf1 + `; do echo $vf >/sys/bus/pci/drivers_probe; done
		n=1
		for vf in ` + vf0 + " " + vf1 + `; do
			dev=$(ls /sys/bus/pci/devices/$vf/net); ip netns add n$n; ip link set $dev netns n$n
			ip -n n$n link set $dev name v0; ip -n n$n addr add 10.9.0.$n/24 dev v0; ip -n n$n link set v0 up; n=$((n+1))
		done`)
	if got := l.Sh("ip -n n1 link show v0 | grep -o 'ether [0-9a-f:]*'"); !strings.Contains(mac, strings.TrimSpace(strings.TrimPrefix(got, "ether "))) {
		t.Errorf("igbvf has %s, the card knows %s", got, mac)
	}
	// igbvf asks for the link now and then: its answer is awaited.
	l.Sh("for n in n1 n2; do until ip -n $n link show v0 | grep -q LOWER_UP; do :; done; done")
	l.Sh("ip netns exec n1 busybox ping -c 3 -W 20 10.9.0.2")
	l.Step("ping between the VFs")
	l.Sh("ip netns del n1; ip netns del n2")

	// Soft RoCE over a VF: back in the first namespace once its own is gone.
	l.Sh(`modprobe rdma_rxe; modprobe ib_uverbs
		until dev=$(ls /sys/bus/pci/devices/` + vf0 + `/net 2>/dev/null) && test -n "$dev"; do :; done
		ip addr add 10.9.0.1/24 dev $dev; ip link set $dev up; rdma link add rxe0 type rxe netdev $dev`)
	if got := l.Sh("ibv_devinfo -d rxe0"); !strings.Contains(got, "PORT_") {
		t.Errorf("ibv_devinfo: %s", got)
	}
	l.Step("soft RoCE on a VF")
	l.Refused(nm+" device bind "+vf0, "in use by this host", "10.9.0.1")
	l.Refused(nm+" device disable-vfs eth0", "in use by this host", "10.9.0.1")
	l.Sh("rdma link delete rxe0; ip addr flush dev $(ls /sys/bus/pci/devices/" + vf0 + "/net)")
	l.Sh(nm + " device disable-vfs eth0")
	l.journals(state)
}
