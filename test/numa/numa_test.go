// Package numa runs nearmetal on an outer host (test/outer) of two packages with two NUMA nodes each, huge pages of both
// sizes and an SR-IOV card on node 2, with VMs by nested KVM: what plans say of such hosts is carried out, and `nearmetal
// verify` sees each part that is spoilt by hand. On demand: `make test-numa`.
package numa

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/topology"
	"nearmetal/internal/verify"
	"nearmetal/test/outer"
)

// vmBound bounds a VM's boot by nested KVM and what it does, and huge pages: 253 s at load 18.
const vmBound = 20 * time.Minute

// cardNode is the node of the card.
const cardNode = 2

// onDemand is for tests of many minutes.
func onDemand(t *testing.T) {
	t.Helper()
	if os.Getenv("NEARMETAL_NUMA") == "" {
		t.Skip("on demand (VMs on an emulated host of four nodes): make test-numa runs it")
	}
}

// host is the outer host.
type host struct{ *outer.Host }

// cores and threads are CPUs of the host, always eight, two a node.
const (
	// The cores have no threads: Linux sees those of AMD's CPUs by a feature (TOPOEXT) that TCG lacks.
	cores = "8,sockets=2,dies=1,cores=4,threads=1"
	// A CPU of Intel's has threads. TCG has no VMX, so that VMs on it are emulated once more.
	threads = "8,sockets=2,dies=1,cores=2,threads=2"
	intel   = "max,-erms,-fsrm,-svm,vendor=GenuineIntel,family=6,model=85,stepping=7"
)

// boot starts it with cores or threads. The memory of the nodes is in DIMMs: more than 2.75 GiB of the board's own would have the firmware put the
// card's window above 4 GiB, where QEMU 10.0 maps the VFs' BARs wrongly (test/sriov).
func boot(t *testing.T, state, smp string) *host {
	t.Helper()
	args := []string{
		"-smp", smp, "-m", "2560M,slots=4,maxmem=16G",
		"-device", fmt.Sprintf("pxb-pcie,id=pxb1,bus_nr=64,numa_node=%d,bus=pcie.0", cardNode),
		"-device", "pcie-root-port,id=rp1,bus=pxb1,chassis=1,slot=1",
		"-netdev", "user,id=n0,restrict=on,ipv6=off", "-device", "igb,id=igb0,netdev=n0,mac=52:54:00:06:01:00,bus=rp1",
	}
	if smp == threads {
		args = append(args, "-cpu", intel)
	}
	for n := range 4 {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=640M", n),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=m%[1]d", n, 2*n, 2*n+1))
	}
	for n := range 4 {
		for k := range 4 {
			if k != n {
				args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", n, k, distance(n, k)))
			}
		}
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=d%d,size=2G", n),
			"-device", fmt.Sprintf("pc-dimm,memdev=d%d,node=%[1]d", n))
	}
	return &host{outer.Start(t, outer.Machine{Name: "numa", Args: args, State: state, Boot: "memhp_default_state=online_kernel"})}
}

// distance is between two nodes: 12 within a package, 21 between.
func distance(a, b int) int {
	switch {
	case a == b:
		return 10
	case a/2 == b/2:
		return 12
	}
	return 21
}

// onHost runs steps on an outer host: each needs what those before have made.
func onHost(t *testing.T, smp string, steps ...func(h *host)) {
	onDemand(t)
	outer.Fresh(t, func() {
		h := boot(t, t.TempDir(), smp)
		defer h.Kill()
		h.prepare()
		for _, step := range steps {
			step(h)
		}
	})
}

// A VM over two nodes is as planned, and is not once it is spoilt.
func TestWide(t *testing.T) { onHost(t, cores, (*host).isAsBuilt, (*host).checksKVM, (*host).wide) }

// A VM in gigantic pages, and a VF that Slurm leases.
func TestPagesAndSlurm(t *testing.T) { onHost(t, cores, (*host).gigantic, (*host).slurm) }

// VMs on a host whose cores have two threads: on both, and on one with the other idle.
func TestThreads(t *testing.T) { onHost(t, threads, (*host).bothThreads, (*host).oneThread) }

// prepare loads the drivers, takes huge pages on each node, and makes VFs.
func (h *host) prepare() {
	h.Sh("set -e; modprobe igb; modprobe kvm_amd || ! grep -qw svm /proc/cpuinfo; modprobe vfio-pci; ip link set lo up; ip link set eth0 up")
	h.Within(vmBound, `set -e; for n in 0 1 2 3; do
		echo 1 >/sys/devices/system/node/node$n/hugepages/hugepages-1048576kB/nr_hugepages
		echo 200 >/sys/devices/system/node/node$n/hugepages/hugepages-2048kB/nr_hugepages
	done`)
	h.Step("huge pages")
	h.Sh(outer.Nearmetal(h.T) + " device enable-vfs eth0 2")
	h.Step("two VFs")
}

// isAsBuilt fails unless nearmetal sees the host as it was built.
func (h *host) isAsBuilt() {
	var top topology.Host
	if err := json.Unmarshal([]byte(h.Sh(outer.Nearmetal(h.T)+" topology --json")), &top); err != nil {
		h.T.Fatal(err)
	}
	if len(top.CPUs) != 8 || len(top.Nodes) != 4 {
		h.T.Fatalf("%d CPUs, %d nodes", len(top.CPUs), len(top.Nodes))
	}
	for _, c := range top.CPUs {
		if c.Package != c.ID/4 || c.Node != c.ID/2 {
			h.T.Errorf("CPU %d is in package %d, on node %d", c.ID, c.Package, c.Node)
		}
		for _, o := range top.CPUs {
			if (o.Core == c.Core) != (o.ID == c.ID) {
				h.T.Errorf("CPUs %d and %d: cores %d and %d", c.ID, o.ID, c.Core, o.Core)
			}
		}
	}
	for n, node := range top.Nodes {
		for k := range top.Nodes {
			if node.Distances[k] != distance(n, k) {
				h.T.Errorf("distances of node %d: %v", n, node.Distances)
			}
		}
		free := map[uint64]int{}
		for _, p := range node.Pools {
			free[p.PageBytes] = p.Free
		}
		if free[2<<20] != 200 || free[1<<30] != 1 {
			h.T.Errorf("huge pages of node %d: %+v", n, node.Pools)
		}
	}
	vfs := 0
	for _, d := range top.Devices {
		if strings.HasPrefix(d.Address, "0000:41:10.") {
			if vfs++; d.Node != cardNode {
				h.T.Errorf("VF %s is on node %d", d.Address, d.Node)
			}
		}
	}
	if vfs != 2 {
		h.T.Errorf("%d VFs", vfs)
	}
	h.Step("topology as built")
}

// checksKVM fails unless the doctor's rows of KVM say what holds here.
func (h *host) checksKVM() {
	out := h.Within(vmBound, outer.Nearmetal(h.T)+" check --only kvm,firmware.virtualization || true")
	h.T.Logf("check:\n%s", out)
	for _, row := range []string{`ok +firmware\.virtualization`, `ok +kvm\.works: works`, `ok +kvm\.nested-paging: npt=`, `(?:ok|warn) +kvm\.apic: avic=`, `(?:ok|warn) +kvm\.ple: pause_filter_count=`, `ok +kvm\.halt-poll`} {
		if !regexp.MustCompile(`(?m)^ *` + row).MatchString(out) {
			h.T.Errorf("check: no row %q", row)
		}
	}
	h.Step("rows of KVM")
}

// rows reads a cluster back.
func (h *host) rows(name string) map[string]verify.Row {
	h.T.Helper()
	out := h.Within(vmBound, outer.Nearmetal(h.T)+" verify --json "+name+" 2>/dev/null || true")
	var r struct{ Rows []verify.Row }
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Rows) == 0 {
		h.T.Fatalf("%v: %s", err, out)
	}
	rows := map[string]verify.Row{}
	for _, row := range r.Rows {
		rows[row.What] = row
	}
	return rows
}

// asPlanned fails unless every row is ok, and returns them.
func (h *host) asPlanned(name string) map[string]verify.Row {
	h.T.Helper()
	rows := h.rows(name)
	for _, r := range rows {
		if r.Status == verify.Differs {
			h.T.Errorf("not as planned: %+v", r)
			out, _ := h.Try(outer.Nearmetal(h.T)+" exec "+name+" -- sh -c 'dmesg | grep -iE \"tlb|memory|reserv|srat|numa|e820|node\"; cat /proc/iomem'", vmBound)
			h.T.Log(out)
		}
	}
	return rows
}

// spoilt runs a script and fails unless the rows named, and no others, differ then.
func (h *host) spoilt(cluster, script string, want ...string) {
	h.T.Helper()
	h.Sh(script)
	var differ []string
	for what, r := range h.rows(cluster) {
		if r.Status == verify.Differs {
			differ = append(differ, what)
		}
	}
	for _, w := range want {
		found := false
		for _, d := range differ {
			found = found || regexp.MustCompile("^"+w+"$").MatchString(d)
		}
		if !found {
			h.T.Errorf("after %q row %q does not differ, but %q do", script, w, differ)
		}
	}
	for _, d := range differ {
		if !regexp.MustCompile("^(?:" + strings.Join(want, "|") + ")$").MatchString(d) {
			h.T.Errorf("after %q row %q differs, too", script, d)
		}
	}
	h.Step(fmt.Sprintf("spoilt: %q", want))
}

// up starts a cluster. VMs that do not come up are the outer host's timers, as a rule: it throws Stuck.
func (h *host) up(name, file string) {
	h.T.Helper()
	began := time.Now()
	out, err := h.Try("cat >/tmp/"+name+".yaml <<'E'\n"+file+"E\n"+outer.Nearmetal(h.T)+" up --name "+name+" -f /tmp/"+name+".yaml --no-share --boot-timeout 15m", vmBound)
	if err != nil {
		outer.Stuck(fmt.Errorf("up %s: %w\n%s\n%s", name, err, out, h.Console()))
	}
	h.Step(fmt.Sprintf("cluster %s is up, %.0f s", name, time.Since(began).Seconds()))
}

// wide is a VM over two nodes, one of them the card's, in 2 MiB pages, with a VF and a region.
func (h *host) wide() {
	nm := outer.Nearmetal(h.T)
	h.up("wide", "vms: [{vcpus: 2, memory: 512MiB, devices: [{pf: eth0, count: 1}]}]\nregion: {size: 16MiB}\nplacement: {pages: 2MiB, nodes: 2}\n")
	rows := h.asPlanned("wide")
	for what, planned := range map[string]string{
		"policy of the memory of node 0":   "bind:2",
		"policy of the memory of node 1":   "bind:3",
		"page size of node 0":              "2 MiB, all taken",
		"page size of node 1":              "2 MiB, all taken",
		"device 0000:41:10.0":              "node 0",
		"distances of node 0 in the guest": "10 12",
		"topology in the guest":            "1 socket x 1 die x 2 cores x 1 thread",
	} {
		if r, ok := rows[what]; !ok || r.Planned != planned {
			h.T.Errorf("row %q is %+v, want planned %q", what, r, planned)
		}
	}
	for v := range 2 { // CPUs 4 and 5 are on node 2, 6 and 7 on node 3
		if r := rows[fmt.Sprintf("CPUs of vCPU %d", v)]; r.Found != fmt.Sprint(4+2*v) && r.Found != fmt.Sprint(5+2*v) {
			h.T.Errorf("vCPU %d: %+v", v, r)
		}
	}
	guest := h.Within(vmBound, nm+` exec wide -- sh -c 'cat /sys/bus/pci/drivers/igbvf/0*/numa_node; cat /run/nearmetal/devices'`)
	if !strings.HasPrefix(guest, "0\n") || !strings.Contains(guest, "igbvf") {
		h.T.Errorf("the VF in the guest: %s", guest)
	}
	h.Step("as planned")

	const pid = "pid=$(pgrep qemu-system); "
	const vcpu = pid + `t=$(grep -l '^CPU 1/KVM$' /proc/$pid/task/*/comm | cut -d/ -f5); `
	// Where a thread may run is noted, changed, and put back.
	const elsewhere, back = "taskset -pc $t | sed 's/.*: //' >/tmp/mask; taskset -pc 0 $t", "taskset -pc $(cat /tmp/mask) $t"
	h.spoilt("wide", vcpu+elsewhere, "CPUs of vCPU 1")
	h.Sh(vcpu + back)
	h.spoilt("wide", pid+"t=$pid; "+elsewhere, "CPUs of QEMU's other threads")
	h.Sh(pid + "t=$pid; " + back)

	in := nm + " exec wide -- sh -c "
	h.spoilt("wide", in+"'echo 0 >/sys/devices/system/cpu/cpu1/online'", "topology in the guest", "vCPUs of node 1 in the guest")
	h.Sh(in + "'echo 1 >/sys/devices/system/cpu/cpu1/online'")
	// The last: it is not put back. A cpuset moves the threads, and says where the memory belongs; the pages stay, since the VF
	// has them pinned.
	h.spoilt("wide", `set -e; mkdir -p /tmp/cpuset; mount -t cgroup -o cpuset none /tmp/cpuset; mkdir /tmp/cpuset/spoil
		echo 0-7 >/tmp/cpuset/spoil/cpuset.cpus; echo 0-1 >/tmp/cpuset/spoil/cpuset.mems
		`+pid+`echo $pid >/tmp/cpuset/spoil/cgroup.procs`,
		"CPUs of .*", "policy of the memory of node [01]")
	h.Sh(nm + " down wide")
	if out := h.Sh("cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/free_hugepages"); out != "200\n200\n200\n200\n" {
		h.T.Errorf("free huge pages after the cluster: %q", out)
	}
	if out := h.Sh("ls /sys/bus/pci/devices/0000:41:10.0/driver 2>&1 || true"); !strings.Contains(out, "No such file") {
		h.T.Errorf("the VF has a driver after the cluster: %s", out)
	}
	h.Step("given back")
}

// gigantic is a VM in a 1 GiB page of a node that the cluster file names.
func (h *host) gigantic() {
	h.up("giant", "vms: [{vcpus: 2, memory: 1GiB}]\nplacement: {pages: 1GiB, hostNodes: [1]}\n")
	rows := h.asPlanned("giant")
	const of = " of node 0"
	if r := rows["page size"+of]; !strings.HasPrefix(r.Found, "1 GiB, all taken") {
		h.T.Errorf("%+v", rows)
	}
	if r := rows["pages"+of]; r.Planned != "host node 1" {
		h.T.Errorf("%+v", r)
	}
	h.Sh(outer.Nearmetal(h.T) + " down giant")
	h.Step("1 GiB pages")
}

// core returns the core that has CPU n of a host with threads.
func core(n int) int { return n / 2 }

// cpus returns the CPU to which each of n vCPUs is bound.
func cpus(t *testing.T, rows map[string]verify.Row, n int) []int {
	t.Helper()
	var on []int
	for v := range n {
		r := rows[fmt.Sprintf("CPUs of vCPU %d", v)]
		c, err := strconv.Atoi(r.Found)
		if err != nil {
			t.Fatalf("vCPU %d: %+v of %+v", v, r, rows)
		}
		on = append(on, c)
	}
	return on
}

// bothThreads is a VM on all threads of two cores, each of a node of its own. The guest sees them as threads.
func (h *host) bothThreads() {
	var top topology.Host
	if err := json.Unmarshal([]byte(h.Sh(outer.Nearmetal(h.T)+" topology --json")), &top); err != nil {
		h.T.Fatal(err)
	}
	for _, c := range top.CPUs {
		for _, o := range top.CPUs {
			if (c.Core == o.Core) != (core(c.ID) == core(o.ID)) {
				h.T.Errorf("CPUs %d and %d: cores %d and %d", c.ID, o.ID, c.Core, o.Core)
			}
		}
	}
	h.up("both", "vms: [{vcpus: 4, memory: 384MiB}]\nplacement: {smt: require, pin: always, pages: 2MiB, nodes: 2}\n")
	rows := h.asPlanned("both")
	if r := rows["topology in the guest"]; r.Planned != "1 socket x 1 die x 2 cores x 2 threads" {
		h.T.Errorf("%+v", r)
	}
	on := cpus(h.T, rows, 4)
	if core(on[0]) != core(on[1]) || core(on[2]) != core(on[3]) || core(on[0]) == core(on[2]) {
		h.T.Errorf("vCPUs are on CPUs %d", on)
	}
	h.Step(fmt.Sprintf("four vCPUs on CPUs %d", on))
	h.Sh(outer.Nearmetal(h.T) + " down both")
}

// oneThread is a VM with a core for each vCPU. Nothing of the VM runs on the other thread.
func (h *host) oneThread() {
	h.up("one", "vms: [{vcpus: 2, memory: 384MiB}]\nplacement: {smt: isolate, pin: always, pages: 2MiB, nodes: 2}\n")
	rows := h.asPlanned("one")
	if r := rows["topology in the guest"]; r.Planned != "1 socket x 1 die x 2 cores x 1 thread" {
		h.T.Errorf("%+v", r)
	}
	on := cpus(h.T, rows, 2)
	if core(on[0]) == core(on[1]) {
		h.T.Errorf("vCPUs are on CPUs %d", on)
	}
	others, err := topology.ParseList(rows["CPUs of QEMU's other threads"].Planned, 8)
	if err != nil || len(others) == 0 {
		h.T.Errorf("%v: %+v", err, rows["CPUs of QEMU's other threads"])
	}
	for _, other := range others {
		if core(other) == core(on[0]) || core(other) == core(on[1]) {
			h.T.Errorf("QEMU's other threads may run on CPU %d, vCPUs are on CPUs %d", other, on)
		}
	}
	h.Step(fmt.Sprintf("two vCPUs on CPUs %d", on))
	h.Sh(outer.Nearmetal(h.T) + " down one")
}
