// Package hosts runs one MPI job over two outer hosts (test/outer), each with an IOMMU and an SR-IOV card, which a wire joins:
// VMs by nested KVM with a VF each, soft RoCE on the VFs, hosts reached by ssh. Ranks use all three channels at
// once. On demand: `make test-hosts`.
package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/test/outer"
)

// Bounds: a run with the boots of its VMs by nested KVM, and how soon a host that has gone is noticed.
const (
	runBound    = 20 * time.Minute
	noticeBound = 4 * time.Minute
)

var names = []string{"alpha", "beta"}

func onDemand(t *testing.T) {
	t.Helper()
	if os.Getenv("NEARMETAL_HOSTS") == "" {
		t.Skip("on demand (VMs on two emulated hosts): make test-hosts runs it")
	}
	for _, p := range []string{"ssh", "ssh-keygen", "mpicc.openmpi", "mpirun.openmpi"} {
		if _, err := exec.LookPath(p); err != nil {
			outer.Missing(t, p)
		}
	}
}

// lab is what both hosts see of this machine, and what joins them.
type lab struct {
	t     *testing.T
	dir   string
	wires [2][2]*os.File // of the cards, and of the network for ssh: an end for each host
	hosts [2]*outer.Host
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, dir: t.TempDir()}
	for w := range l.wires {
		// Datagrams: a host whose power is cut leaves no half frame in the wire.
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, fd := range fds {
			l.wires[w][i] = os.NewFile(uintptr(fd), "wire")
			t.Cleanup(func() { l.wires[w][i].Close() })
		}
	}
	config := ""
	for _, key := range append([]string{"user"}, names...) {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", l.path(key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	for i, name := range names {
		l.write(name+".conf", 0o600, fmt.Sprintf("ListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"+
			"PermitRootLogin prohibit-password\nPidFile none\nSetEnv NEARMETAL_RUNTIME_DIR=%s\n", address(i), l.path(name), l.path("user.pub"), outer.RuntimeDir))
		config += fmt.Sprintf("Host %s\n HostName %s\n", name, address(i))
	}
	l.write("config", 0o600, fmt.Sprintf("%sHost *\n User root\n IdentityFile %s\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile /tmp/known\n",
		config, l.path("user")))
	l.write("ssh", 0o755, fmt.Sprintf("#!/bin/sh\nexec /usr/bin/ssh -F %s \"$@\"\n", l.path("config")))
	l.write("cluster.yaml", 0o644, `# vm0, with two ranks, and vm1 on one host; vm2 on the other.
vms:
  - {name: two, vcpus: 2, memory: 448MiB, devices: [{pf: eth0, count: 1}]}
  - {name: one, count: 2, vcpus: 1, memory: 448MiB, devices: [{pf: eth0, count: 1}]}
network: {type: rxe}
region: {size: 64MiB}
env: {FI_IVSHMEM_TIMEOUT: 200000}
placement: {hosts: [alpha, beta]}
`)
	for _, p := range []struct{ source, program string }{{"../slurm/testdata/pairs.c", "pairs"}} {
		if out, err := exec.Command("mpicc.openmpi", "-O1", "-o", l.path(p.program), p.source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command("make", "-s", "-C", "../../kernels", "MPICC=mpicc.openmpi", "BUILD="+l.dir, l.path("nm_cg")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range names {
		if err := os.Mkdir(l.path(name+".state"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name string, mode os.FileMode, text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), mode); err != nil {
		l.t.Fatal(err)
	}
}

// address is that of a host in the network for ssh.
func address(i int) string { return fmt.Sprintf("198.18.78.%d", i+1) }

// boot starts a host, with its sshd and two VFs.
func (l *lab) boot(i int) *outer.Host {
	l.t.Helper()
	l.hosts[i] = outer.Start(l.t, outer.Machine{Name: names[i], State: l.path(names[i] + ".state"),
		Files: []*os.File{l.wires[0][i], l.wires[1][i]}, Args: []string{
			"-smp", "4", "-m", "2560M", // below 2.75 GiB: see test/sriov
			"-device", "pcie-root-port,id=rp1,bus=pcie.0,chassis=1,slot=1",
			"-netdev", fmt.Sprintf("dgram,id=n0,local.type=fd,local.str=%d", outer.File(0)),
			"-device", fmt.Sprintf("igb,id=igb0,netdev=n0,mac=52:54:00:06:%02x:00,bus=rp1", i+1),
			"-netdev", fmt.Sprintf("dgram,id=n1,local.type=fd,local.str=%d", outer.File(1)),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n1,mac=52:54:00:07:%02x:00,bus=pcie.0", i+1),
		}})
	h := l.hosts[i]
	h.Sh(`set -e; ip link set lo up; modprobe virtio_net
		until ls /sys/class/net | grep -q '^eth'; do :; done; ip link set eth0 name ssh0
		ip addr add ` + address(i) + `/24 dev ssh0; ip link set ssh0 up
		modprobe igb; modprobe kvm_amd; modprobe vfio-pci; ip link set eth0 up
		mkdir -p /run/sshd; /usr/sbin/sshd -f ` + l.path(names[i]+".conf") + ` -E /tmp/sshd.log
		` + outer.Nearmetal(l.t) + ` device enable-vfs eth0 2`)
	h.Step("sshd, two VFs")
	return h
}

// nm runs nearmetal on the first host.
func (l *lab) nm(bound time.Duration, args string) (string, error) {
	return l.hosts[0].Try("export PATH="+l.dir+":$PATH; cd /tmp; "+outer.Nearmetal(l.t)+" "+args, bound)
}

// freeVFs fails unless a host's VFs are as enable-vfs made them.
func (l *lab) freeVFs(i int) {
	l.t.Helper()
	out := l.hosts[i].Sh("for f in /sys/bus/pci/devices/*/physfn; do d=${f%/physfn}; echo $(basename $d) $(readlink $d/driver || echo none); done; ls /dev/vfio")
	if strings.Count(out, " none\n") != 2 || !strings.HasSuffix(out, "\nvfio\n") {
		l.t.Errorf("%s: VFs after the cluster: %s", names[i], out)
	}
	if open, _ := filepath.Glob(l.path(names[i]+".state") + "/*.open"); len(open) > 0 {
		l.t.Errorf("%s: left in the journals: %q", names[i], open)
	}
}

// used is what the provider says at a rank's end of the channels that it used.
var used = regexp.MustCompile(`channels used: (\d+) ranks of this VM, (\d+) lines, (\d+) direct copies; (\d+) ranks of other VMs, (\d+) lines; (\d+) ranks over the core provider, (\d+) messages`)

// solution are the solver's digits, which do not depend on where it runs.
var solution = regexp.MustCompile(`(?m)^(iterations|residual|error|checksum).*$`)

// onBoth runs a test on two outer hosts.
func onBoth(t *testing.T, test func(l *lab)) {
	onDemand(t)
	outer.Fresh(t, func() {
		l := newLab(t)
		ready := make(chan any)
		go func() { // both boot at once; what the second throws is thrown here
			defer func() { ready <- recover() }()
			l.boot(1)
		}()
		func() {
			defer func() {
				if r := <-ready; r != nil {
					panic(r)
				}
			}()
			l.boot(0)
		}()
		defer l.hosts[0].Kill()
		defer func() { l.hosts[1].Kill() }() // of the second, if the first was killed
		test(l)
	})
}

// Programs whose ranks use CMA within a VM, the region within a host, and verbs between the hosts, at once.
func TestThreeChannels(t *testing.T) { onBoth(t, (*lab).threeChannels) }

func (l *lab) threeChannels() {
	t := l.t
	out, err := l.nm(runBound, "up --name pair -f "+l.path("cluster.yaml")+" --no-share -v --boot-timeout 15m")
	t.Logf("up:\n%s", out)
	if err != nil {
		outer.Stuck(fmt.Errorf("up: %w\n%s%s", err, l.hosts[0].Console(), l.hosts[1].Console()))
	}
	l.hosts[0].Step("cluster of three VMs is up")
	for _, w := range []string{"between VMs of one host go by the region of 64MiB", "between VMs of different hosts go by verbs over rxe0 port 1 (RoCE v2"} {
		if !strings.Contains(out, w) {
			t.Errorf("%q is missing in what up says", w)
		}
	}
	devices, err := l.nm(outer.StepTimeout, "ps pair --devices")
	t.Logf("devices:\n%s", devices)
	if err != nil || strings.Count(devices, "igbvf") != 3 || strings.Count(devices, "rdma_rxe") != 3 {
		t.Errorf("%v", err)
	}
	verified, err := l.nm(runBound, "verify pair")
	if err != nil || !strings.Contains(verified, "3 VMs: as planned") {
		t.Errorf("verify: %v\n%s", err, verified)
	}
	for _, p := range []struct{ program, right string }{{"pairs", ": right\n"}, {"nm_cg --grid 8", ""}} {
		out, err := l.nm(runBound, "exec --env FI_LOG_LEVEL=info --env FI_LOG_PROV=ivshmem --env FI_LOG_SUBSYS=ep_ctrl,domain pair -- mpirun.openmpi -n 4 "+l.path(p.program))
		if err != nil {
			t.Errorf("%s: %v\n%s", p.program, err, out)
			continue
		}
		t.Logf("%s:\n%s", p.program, strings.Join(used.FindAllString(out, -1), "\n"))
		within, region, verbs := 0, 0, 0
		for _, m := range used.FindAllStringSubmatch(out, -1) {
			if m[3] != "0" { // direct copies, of messages between two ranks of this VM
				within++
			}
			if m[4] != "0" && m[5] != "0" {
				region++
			}
			if m[6] != "0" && m[7] != "0" {
				verbs++
			}
		}
		// Ranks 0 and 1 are in one VM; all but the other host's have neighbours. The solver's messages are too short for CMA.
		if p.program == "pairs" && within != 2 || region != 3 || verbs != 4 {
			t.Errorf("%s: %d ranks used CMA's channel, %d the region, %d verbs: want 2 (pairs), 3, 4\n%s", p.program, within, region, verbs, out)
		}
		if n := strings.Count(out, "ranks on other hosts are reached over verbs;ofi_rxm"); n < 4 || strings.Contains(out, "reached over tcp") {
			t.Errorf("%s: %d ranks had verbs beneath\n%s", p.program, n, out)
		}
		if p.right != "" && strings.Count(out, p.right) != 4 {
			t.Errorf("%s:\n%s", p.program, out)
		}
		if p.right == "" {
			native, err := exec.Command(l.path("nm_cg"), "--grid", "8").Output()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := solution.FindAllString(out, -1), solution.FindAllString(string(native), -1); fmt.Sprint(got) != fmt.Sprint(want) || len(want) == 0 {
				t.Errorf("found %q, natively %q", got, want)
			}
		}
		l.hosts[0].Step(p.program)
	}
	if out, err := l.nm(outer.StepTimeout, "down pair"); err != nil {
		t.Errorf("down: %v\n%s", err, out)
	}
	for i := range names {
		l.freeVFs(i)
	}
	l.hosts[0].Step("VFs given back")
}

// A host's VFs are in a VLAN that the other's are not in: `up` says in one line which VM does not reach which, and what to
// look at, and messages between the hosts take the VMs' network. Without the VLAN the same cluster has verbs.
func TestWrongVLAN(t *testing.T) { onBoth(t, (*lab).wrongVLAN) }

func (l *lab) wrongVLAN() {
	t := l.t
	l.write("vlan.yaml", 0o644, `# vm0 on one host, vm1 on the other.
vms: [{count: 2, vcpus: 1, memory: 384MiB, devices: [{pf: eth0, count: 1}]}]
network: {type: rxe}
placement: {hosts: [alpha, beta]}
`)
	for _, c := range []struct {
		vlan  string
		set   int // VFs of beta that have a VLAN then
		lines int
		way   string
	}{
		{"77", 2, 1, "go by TCP over the VMs' network, since devices: vm0 "},
		{"0", 0, 0, "go by verbs over rxe0 port 1 (RoCE v2"},
	} {
		said := l.hosts[1].Sh("for f in /sys/bus/pci/devices/*/physfn; do d=${f%/physfn}; " + outer.Nearmetal(t) +
			" device set $(basename $d) --vlan " + c.vlan + " || exit 1; done; ip link show eth0")
		if strings.Count(said, "vlan 77") != c.set {
			t.Errorf("VLAN %s: beta's VFs: %s", c.vlan, said)
		}
		out, err := l.nm(runBound, "up --name vlan -f "+l.path("vlan.yaml")+" --no-share --boot-timeout 15m")
		t.Logf("VLAN %s: up:\n%s", c.vlan, out)
		if err != nil {
			outer.Stuck(fmt.Errorf("up: %w\n%s%s", err, l.hosts[0].Console(), l.hosts[1].Console()))
		}
		l.hosts[0].Step("VLAN " + c.vlan + ": cluster of two VMs is up")
		wrong := regexp.MustCompile(`(?m)^.*vm0 \(eth\d, 10\.78\.0\.\d+\) does not reach vm1 \(10\.78\.0\.\d+\).* same VLAN.*$`)
		if n := len(wrong.FindAllString(out, -1)); n != c.lines || strings.Count(out, "same VLAN") != c.lines {
			t.Errorf("VLAN %s: %d lines say who does not reach whom, want %d", c.vlan, n, c.lines)
		}
		if out, err := l.nm(outer.StepTimeout, "ps vlan"); err != nil || !strings.Contains(out, "messages between VMs of different hosts "+c.way) {
			t.Errorf("VLAN %s: %v, want %q\n%s", c.vlan, err, c.way, out)
		}
		out, err = l.nm(runBound, "exec vlan -- mpirun.openmpi -n 2 "+l.path("pairs"))
		if err != nil || strings.Count(out, ": right\n") != 2 {
			t.Errorf("VLAN %s: %v\n%s", c.vlan, err, out)
		}
		l.hosts[0].Step("VLAN " + c.vlan + ": pairs")
		if out, err := l.nm(outer.StepTimeout, "down vlan"); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
		for i := range names {
			l.freeVFs(i)
		}
		if now := l.hosts[1].Sh("ip link show eth0"); strings.Count(now, "vlan 77") != c.set {
			t.Errorf("VLAN %s: after the cluster beta's VFs are in another: %s", c.vlan, now)
		}
	}
}

// A host's power is cut under a cluster: the other host ends its VMs, and once the host is back a cluster starts.
func TestPowerCut(t *testing.T) { onBoth(t, (*lab).powerCut) }

func (l *lab) powerCut() {
	t := l.t
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := l.nm(runBound+noticeBound, "run --name cut -f "+l.path("cluster.yaml")+" --no-share --boot-timeout 15m -- sh -c 'echo here; sleep 900' 2>&1 | tee /var/lib/nearmetal/cut.log; exit 0")
		ended <- result{out, err}
	}()
	log := l.path("alpha.state/cut.log")
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		said, _ := os.ReadFile(log)
		if strings.Count(string(said), ": here\n") == 3 {
			break
		}
		select {
		case r := <-ended:
			outer.Stuck(fmt.Errorf("run has ended before all three VMs said anything: %v\n%s", r.err, r.out))
		default:
		}
		if time.Since(began) > runBound {
			outer.Stuck(fmt.Errorf("run: no VM of three says anything: %s", said))
		}
	}
	l.hosts[1].Kill()
	l.hosts[0].Step("the power of beta is cut")
	began := time.Now()
	select {
	case r := <-ended:
		if r.err != nil || !strings.Contains(r.out, "host beta") {
			t.Errorf("run: %v\n%s", r.err, r.out)
		}
	case <-time.After(noticeBound):
		t.Fatal("run does not notice that a host has gone")
	}
	l.hosts[0].Step(fmt.Sprintf("run has ended, %.0f s after the cut", time.Since(began).Seconds()))
	if out := l.hosts[0].Sh("pgrep -a qemu-system || true; ls " + outer.RuntimeDir + ""); strings.Contains(out, "qemu") || strings.Contains(out, "cut") {
		t.Errorf("left on alpha: %s", out)
	}
	l.freeVFs(0)

	h := l.boot(1)
	h.Sh(outer.Nearmetal(t) + " host recover")
	out, err := l.nm(runBound, "run -f "+l.path("cluster.yaml")+" --no-share --boot-timeout 15m -- hostname")
	if err != nil {
		outer.Stuck(fmt.Errorf("run after the power cut: %w\n%s", err, out))
	}
	for _, vm := range []string{"two0: two0", "one0: one0", "one1: one1"} {
		if !strings.Contains(out, vm) {
			t.Errorf("after the power cut: %s", out)
		}
	}
	for i := range names {
		l.freeVFs(i)
	}
	h.Step("a cluster ran after the power cut")
}
