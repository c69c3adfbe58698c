package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tookRXE is what a rank of Open MPI 4 or 5 says when it takes the device.
var tookRXE = regexp.MustCompile(`mtl:ofi:provider(:domain)?: rxe0`)

// With `network: rxe` each VM has an RDMA device, so that the whole verbs path runs where
// there is no card: the verbs library sees it, perftest measures over it, and an MPI program
// runs over libfabric's verbs;ofi_rxm with the native result.
func TestSoftRoCE(t *testing.T) {
	needs(t, "ibv_devinfo", "ib_send_lat", "mpirun.openmpi")
	c := up(t, "--vms", "2", "--network", "rxe", "--no-share", "--fabric", "none",
		"--env", "OMPI_MCA_pml=cm", "--env", "OMPI_MCA_mtl=ofi", "--env", "OMPI_MCA_mtl_ofi_provider_include=verbs;ofi_rxm",
		"--env", "OMPI_MCA_mtl_base_verbose=1", "--env", "OMPI_MCA_opal_common_ofi_verbose=1") // Open MPI 4, 5

	r := nm(t, "ps", c, "--devices").want(t, 0, "rdma_rxe", "10.77.0.1", "10.77.0.2")
	// With its second GID each device has one for RoCE v2 that follows from its address.
	if strings.Count(r.out, "ACTIVE") != 2 || strings.Count(r.out, "Ethernet  1 ") != 2 {
		t.Errorf("not two active devices:\n%s", r.out)
	}
	nm(t, "ps", c).want(t, 0, "messages between VMs go by verbs over rxe0 port 1 (RoCE v2, GID 1)")
	r = nm(t, "exec", "-c", c, "--all", "--", "ibv_devinfo").want(t, 0)
	if strings.Count(r.out, "hca_id:\trxe0") != 2 || strings.Count(r.out, "PORT_ACTIVE") != 2 {
		t.Errorf("not two active ports:\n%s", r.out)
	}

	server := command(t, "exec", "-c", c, "--vm", "vm0", "--", "ib_send_lat", "-d", "rxe0", "-x", "1", "-F", "-n", "100")
	said := newReader()
	var out bytes.Buffer
	server.Stdout, server.Stderr = said, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Process.Signal(os.Interrupt)
	// It listens a moment after its first line at the latest; a client that comes before is refused.
	var client result
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		client = nm(t, "exec", "-c", c, "--vm", "vm1", "--", "ib_send_lat", "-d", "rxe0", "-x", "1", "-F", "-n", "100", "vm0")
		if client.code == 0 || time.Now().After(end) {
			break
		}
	}
	client.want(t, 0, "Send Latency Test", "rxe0", "10:77:00:01")
	if err := server.Wait(); err != nil {
		t.Errorf("the server: %v\n%s%s", err, said, &out)
	}

	args := []string{"mpirun.openmpi", "-n", "2", kernel(t, "mpicc.openmpi", "nm_cg"), "--grid", "32"}
	native := exec.Command(args[0], args[1:]...)
	native.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1")
	want, err := native.Output()
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	r = inVMs(t, c, false, args...)
	r.places(t)
	got := strings.Join(found.FindAllString(r.out, -1), "\n")
	if got == "" || got != strings.Join(found.FindAllString(string(want), -1), "\n") {
		t.Errorf("found\n%s\nnatively\n%s", got, want)
	}
	if n := len(tookRXE.FindAllString(r.out+r.err, -1)); n != 2 {
		t.Errorf("%d ranks took the provider of rxe0, want 2:\n%s", n, r.err)
	}
	t.Run("two devices", func(t *testing.T) { testTwoDevices(t, c) })
}

// Short messages to another host go without a completion over verbs only. The provider's own tests of them run here over
// a device, each rank with a region of its own as if on a host of its own: in order, the last one before an end, ranks
// that have closed, and one that is killed. So do the attacks by false counts, which over TCP nothing depends on.
func TestShortMessagesVerbs(t *testing.T) {
	program, err := filepath.Abs("../../build/c/test/fabric/fabric_tests")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := filepath.Abs("../../build/c/fabric")
	if err != nil {
		t.Fatal(err)
	}
	needs(t, program)
	c := up(t, "--vms", "1", "--vcpus", "2", "--network", "rxe")
	for _, name := range []string{"hosts_in_order", "hosts_last_word", "hosts_closed", "hosts_short_killed", "hosts_lie_handled", "hosts_lie_order"} {
		nm(t, "exec", "-c", c, "--", "env", "FI_PROVIDER_PATH="+provider, "FI_UNIVERSE_SIZE=64", "FABRIC_PATIENCE=2", "FABRIC_CORE=verbs;ofi_rxm",
			"FI_OFI_RXM_BUFFER_SIZE=16640", "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=domain", program, name).
			want(t, 0, name, "ranks on other hosts are reached over verbs;ofi_rxm, device rxe0")
	}
	t.Run("lost", func(t *testing.T) { testLost(t, c, program, provider) })
}

// ownWire adds to a VM two soft RoCE devices, at the two ends of a wire: else what one sends to another of the same kernel never
// leaves it. To each end the other one's address is on the wire, although the kernel has it as well.
const ownWire = `set -e
for m in veth act_police cls_matchall sch_ingress; do modprobe $m; done
ip link add v1 type veth peer name v2
for i in 1 2; do
	o=$((3 - i))
	ip addr add 10.79.$i.1/32 dev v$i
	ip link set v$i up
	rdma link add rxe$i type rxe netdev v$i
	ip neigh add 10.79.$o.1 lladdr $(cat /sys/class/net/v$o/address) dev v$i nud permanent
	ip route add 10.79.$o.1 dev v$i src 10.79.$i.1 table 10$i
	ip rule add pref 1 iif v$i to 10.79.$i.1 lookup local
	ip rule add pref 2 from 10.79.$i.1 to 10.79.$o.1 lookup 10$i
done
ip rule add pref 3 lookup local
ip rule del pref 0
tc qdisc add dev v1 clsact
`

// lose makes v1 lose the first packet that comes then, of up to 200 bytes: what is within its rate is dropped, the rest passes.
const lose = "tc filter add dev v1 ingress matchall action police rate 8bit burst 200 conform-exceed pass/drop"

// The network loses a rank's last message, and the rank closes at once. Its device sends the message again only as long as it
// has the endpoint, so that the rank has to wait for the other's device.
func testLost(t *testing.T, c, program, provider string) {
	needs(t, "rdma", "ip", "tc")
	nm(t, "exec", "-c", c, "--", "sh", "-c", ownWire).want(t, 0)
	nm(t, "exec", "-c", c, "--", "env", "FI_PROVIDER_PATH="+provider, "FI_UNIVERSE_SIZE=64", "FI_OFI_RXM_BUFFER_SIZE=16640",
		"FI_VERBS_IFACE=", "FI_IVSHMEM_DEVICES=rxe1,rxe2", "FABRIC_CORE=verbs;ofi_rxm", "FABRIC_LOSE="+lose,
		"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=domain", program, "hosts_last_word").
		want(t, 0, "hosts_last_word", "device rxe1\n", "device rxe2\n")
	r := nm(t, "exec", "-c", c, "--", "tc", "-s", "filter", "show", "dev", "v1", "ingress").want(t, 0)
	if !strings.Contains(r.out, "(dropped ") || strings.Contains(r.out, "(dropped 0,") {
		t.Errorf("no packet was lost:\n%s", r.out)
	}
}

// What a cluster file wants of devices and this host has not is said in one line, before
// anything is started.
func TestDevicesRefused(t *testing.T) {
	for file, words := range map[string]string{
		"vms: [{devices: [{pf: mlx5_77}]}]\n":                             "1 VF of mlx5_77, and 0 are free",
		"vms: [{devices: [{class: infiniband, count: 60}]}]\n":            "60 infiniband VFs",
		"vms: [{devices: [{type: pci, address: \"fffe:ff:1f.7\"}]}]\n":    "fffe:ff:1f.7",
		"vms: [{devices: [{pf: \"../../etc/passwd\"}]}]\n":                "is not a device's name",
		"vms: [{devices: [{type: pci, address: \"0000:00:03.0\\n\"}]}]\n": "is not a PCI address",
	} {
		cmd := command(t, "run", "-f", "cluster.yaml", "--no-share", "--", "true")
		write(t, cmd.Dir, "cluster.yaml", file)
		r := finish(t, cmd, "")
		if r.code != 125 && r.code != 2 {
			t.Errorf("%s: exit status %d: %s", file, r.code, r.err)
		}
		r.want(t, r.code, words)
		oneLine(t, r)
	}
}

// twoDevices adds to the VM of number $1, whose only peer is $2, two more soft RoCE devices, on interfaces of one Ethernet
// that joins both VMs. It is a VXLAN because the VMs' network takes frames from a VM's own address only. They are no
// macvlans: the kernel lists the address of a macvlan with the device below it as well.
const twoDevices = `set -e
for m in vxlan bridge veth; do modprobe $m; done
ip link add vx0 type vxlan id 7 local 10.77.0.$1 remote 10.77.0.$2 dstport 4789
ip link add br0 type bridge
ip link set vx0 master br0 up
ip link set br0 up
sysctl -q -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
for i in 1 2; do
	ip link add v$i mtu 1450 type veth peer name w$i mtu 1450
	ip link set w$i master br0 up
	ip addr add 10.79.$i.$1/16 dev v$i
	ip link set v$i up
	rdma link add rxe$i type rxe netdev v$i
done
`

// Of two devices in each VM the two ranks of a VM use one each, and reach those of the other VM over both.
func testTwoDevices(t *testing.T, c string) {
	needs(t, "rdma", "ip")
	for i, args := range [][]string{{"1", "2"}, {"2", "1"}} {
		nm(t, append([]string{"exec", "-c", c, "--vm", "vm" + strconv.Itoa(i), "--", "sh", "-c", twoDevices, "sh"}, args...)...).want(t, 0)
	}
	provider, err := filepath.Abs("../../build/c/fabric")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	// Each VM has a region of its own, as VMs of two hosts have. libfabric 1.17's ofi_rxm asks for its own core provider
	// behind the filter.
	apart := filepath.Join(dir, "apart")
	writeProgram(t, apart, `#!/bin/sh
export FI_PROVIDER_PATH=`+provider+` FI_PROVIDER=ivshmem,verbs,ofi_rxm FI_IVSHMEM_REGION=/dev/shm/$(hostname) FI_IVSHMEM_REGION_SIZE=67108864
export FI_IVSHMEM_CORE="verbs;ofi_rxm" FI_IVSHMEM_DEVICES=rxe1,rxe2 FI_VERBS_IFACE= FI_LOG_SUBSYS=ep_ctrl,domain
export OMPI_MCA_mtl_ofi_provider_include=ivshmem OMPI_MCA_opal_common_ofi_provider_include=ivshmem
exec "$@"
`)
	r := inVMs(t, c, false, "mpirun.openmpi", "-n", "4", apart, kernel(t, "mpicc.openmpi", "nm_cg"), "--grid", "16")
	r.places(t)
	for _, device := range []string{"rxe1", "rxe2"} {
		if n := strings.Count(r.err, "reached over verbs;ofi_rxm, device "+device+"\n"); n != 2 {
			t.Errorf("%d ranks took %s, want 2:\n%s", n, device, r.err)
		}
	}
	if u := channels(r); len(u) != 4 || u.count(overVM) != 4 || u.count(overCore) != 4 {
		t.Errorf("channels: %q", u)
	}
	testRails(t, c, dir)
}

// Open MPI by UCX sends one rank's large messages over both devices, half over each; over one where UCX_MAX_RNDV_RAILS says
// so. They are written: on a busy machine reads over soft RoCE may be repeated for minutes. dir is for programs.
func testRails(t *testing.T, c, dir string) {
	const size, iterations, window = 512 << 10, 2, 2
	const payload = (iterations + 1) * window * size // one is to warm up
	sent := func() (n [2]int) {
		r := nm(t, "exec", "-c", c, "--vm", "vm0", "--", "cat", "/sys/class/net/v1/statistics/tx_bytes", "/sys/class/net/v2/statistics/tx_bytes").want(t, 0)
		for i, f := range strings.Fields(r.out) {
			v, err := strconv.Atoi(f)
			if err != nil || i >= len(n) {
				t.Fatalf("counters: %q", r.out)
			}
			n[i] = v
		}
		return n
	}
	for _, rails := range []string{"", "1"} {
		program := filepath.Join(dir, "rails"+rails)
		bound := ""
		if rails != "" {
			bound = "UCX_MAX_RNDV_RAILS=" + rails
		}
		writeProgram(t, program, `#!/bin/sh
export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any
export UCX_TLS=rc,self UCX_NET_DEVICES=rxe1:1,rxe2:1 UCX_RNDV_SCHEME=put_zcopy `+bound+`
exec "$@"
`)
		before := sent()
		words := fmt.Sprintf("--sizes %d:%d --iterations %d --warmup 1 --window %d", size, size, iterations, window)
		inVMs(t, c, false, append([]string{"mpirun.openmpi", "-n", "2", program, kernel(t, "mpicc.openmpi", "nm_bw")}, strings.Fields(words)...)...).places(t)
		after := sent()
		a, b := after[0]-before[0], after[1]-before[1]
		if least := min(a, b); rails == "" && least < payload/3 || rails == "1" && (least > payload/10 || max(a, b) < payload) {
			t.Errorf("%d bytes of messages, UCX_MAX_RNDV_RAILS=%q: %d over one device, %d over the other", payload, rails, a, b)
		}
	}
}
