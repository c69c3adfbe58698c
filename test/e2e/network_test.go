package e2e

import (
	"os"
	"strings"
	"testing"
)

// pings is a shell's loop that reaches every VM by name, with a message that takes 41
// frames of 1500 bytes, and counts the frames that came meanwhile. One of five has to be answered: a
// network may lose packets, as a busy machine does.
const pings = `frames() { cat /sys/class/net/eth0/statistics/rx_packets; }
	before=$(frames)
	for vm in %VMS%; do busybox ping -c 5 -i 0.2 -W 20 -s 60000 -q $vm | grep -Eq ' [0-9]?[0-9]% packet loss' || echo BAD: no $vm; done
	test $(($(frames) - before)) -lt 80 || echo BAD: $(($(frames) - before)) frames
	echo done`

// Three VMs are joined by a switch of ours, without privileges.
func TestThreeVMs(t *testing.T) {
	needs(t, "busybox")
	c := up(t, "--vms", "3", "--no-share")
	r := nm(t, "exec", "-c", c, "--all", "--", "sh", "-c", strings.ReplaceAll(pings, "%VMS%", "vm0 vm1 vm2")).want(t, 0)
	if strings.Count(r.out, "done\n") != 3 || strings.Contains(r.out, "BAD") {
		t.Errorf("%s%s", r.out, r.err)
	}
	// A VM that ends does not take the others along.
	nm(t, "exec", "-c", c, "--vm", "vm1", "--as-root", "--", "sh", "-c", "echo o >/proc/sysrq-trigger")
	until(t, "the end of vm1", func() bool { return strings.Contains(nm(t, "ps", c).out, "vm1  dead") })
	r = nm(t, "exec", "-c", c, "--vm", "vm0", "--", "sh", "-c", strings.ReplaceAll(pings, "%VMS%", "vm2")).want(t, 0)
	if strings.Contains(r.out, "BAD") {
		t.Errorf("%s%s", r.out, r.err)
	}
	nm(t, "exec", "-c", c, "--vm", "vm1", "true").want(t, 125, "vm1")

	// Started again it has its place in the network, and the region.
	nm(t, "restart", c+"/vm1").want(t, 0)
	r = nm(t, "exec", c+"/vm1", "--", "sh", "-c", "test -e /dev/nearmetal/region || echo BAD: no region; "+strings.ReplaceAll(pings, "%VMS%", "vm0 vm2")).want(t, 0)
	if strings.Contains(r.out, "BAD") {
		t.Errorf("%s%s", r.out, r.err)
	}
	nm(t, "verify", c).want(t, 0)
}

// As root, VMs can be on a bridge; it and the taps are gone afterwards. In a network
// namespace of its own, so that the host's network is left alone.
func TestBridge(t *testing.T) {
	needs(t, "busybox", "ip")
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing(t, "/dev/net/tun")
	}
	cmd := within(t, "-n", "", append(append([]string{"run"}, small...), "-f", "cluster.yaml", "--vms", "2", "--",
		"sh", "-c", strings.ReplaceAll(pings, "%VMS%", "vm0 vm1"))...)
	cmd.Args[4] = `ip link set lo up; "$@"; status=$?; echo left: $(ip -br link | grep -c nm-); exit $status`
	write(t, cmd.Dir, "cluster.yaml", "network: {type: bridge}\nvms: [{count: 2}]\n")
	r := finish(t, cmd, "").want(t, 0, "left: 0\n")
	if strings.Count(r.out, "done\n") != 2 || strings.Contains(r.out, "BAD") {
		t.Errorf("%s%s", r.out, r.err)
	}

	// A bridge of the administrator's is used, and left.
	cmd = within(t, "-n", "", append(append([]string{"run"}, small...), "-f", "cluster.yaml", "--", "busybox", "ping", "-c", "1", "-W", "20", "10.77.0.200")...)
	cmd.Args[4] = `ip link set lo up; ip link add mine type bridge; ip addr add 10.77.0.200/16 dev mine; ip link set mine up
		"$@"; status=$?; echo left: $(ip -br link | grep -c nm-) $(ip -br link show mine | cut -d' ' -f1); exit $status`
	write(t, cmd.Dir, "cluster.yaml", "network: {type: bridge, bridge: mine, mtu: 1500}\n")
	finish(t, cmd, "").want(t, 0, "left: 0 mine\n")
}

// A VM on a bridge that is started again, while it runs and after it panicked, is on the bridge again.
func TestBridgeRestart(t *testing.T) {
	needs(t, "busybox", "ip")
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing(t, "/dev/net/tun")
	}
	cmd := within(t, "-n", "", append(append([]string{"up"}, small...), "-f", "cluster.yaml", "--vms", "2", "--no-share", "--name", "bridged")...)
	cmd.Args[4] = `ip link set lo up; "$@" || exit; nm=$1
		reach() { $nm exec bridged/$1 -- sh -c '` + strings.NewReplacer("%VMS%", "$0", "'", `'\''`).Replace(pings) + `' $2; }
		reach vm0 vm1; $nm restart bridged/vm1 && reach vm1 vm0 && reach vm0 vm1
		$nm exec --as-root bridged/vm0 -- sh -c 'echo c >/proc/sysrq-trigger'
		$nm restart bridged/vm0 && reach vm0 vm1
		$nm down bridged; echo left: $(ip -br link | grep -c nm-)`
	write(t, cmd.Dir, "cluster.yaml", "network: {type: bridge}\nvms: [{count: 2}]\n")
	r := finish(t, cmd, "").want(t, 0, "left: 0\n")
	if strings.Count(r.out, "done\n") != 4 || strings.Contains(r.out, "BAD") {
		t.Errorf("%s%s", r.out, r.err)
	}
}

// Bridges are root's: others get an error.
func TestBridgeOfUser(t *testing.T) {
	a := newAccount(t, 65534)
	cmd := a.command(t, append([]string{"run", "-f", "-", "true"}, a.kernel(t)...)...)
	oneLine(t, finish(t, cmd, "network: {type: bridge}\n").want(t, 125, "needs root"))
	cmd = a.command(t, "run", "-f", "-", "true")
	oneLine(t, finish(t, cmd, "network: {type: bridge, bridge: nothing0}\n").want(t, 125, "nothing0"))
}
