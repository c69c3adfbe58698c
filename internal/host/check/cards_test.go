package check

import (
	"context"
	"errors"
	"strings"
	"testing"

	"nearmetal/test/hosttree"
)

// infiniBandCard is a card with an InfiniBand port and VFs, in the form of the kernel's own mlx5 driver.
const infiniBandCard = `proc/version = x
sys/bus/pci/devices/0000:3b:00.0/vendor = 0x15b3
sys/bus/pci/devices/0000:3b:00.0/device = 0x101b
sys/bus/pci/devices/0000:3b:00.0/class = 0x020700
sys/bus/pci/devices/0000:3b:00.0/sriov_totalvfs = 8
sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs = 2
sys/bus/pci/devices/0000:3b:00.0/net/ibp59s0/type = 32
sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0/node_guid = b8ce:f603:00aa:0010
sys/class/infiniband/mlx5_0/node_guid = b8ce:f603:00aa:0010
sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
sys/class/infiniband/mlx5_0/ports/1/link_layer = InfiniBand
`

// judge returns the result of one row on a host with these files, whose programs print the given answers.
func judge(t *testing.T, id, tree string, programs map[string]string) Result {
	t.Helper()
	dir := hosttree.Dir(t)
	if err := hosttree.Add(dir, tree); err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Options{Root: dir, Only: []string{id}, Command: func(_ context.Context, name string, args ...string) ([]byte, error) {
		if s, ok := programs[name+" "+strings.Join(args, " ")]; ok {
			return []byte(s), nil
		}
		return nil, errors.New("not known here")
	}})
	if err != nil || len(r.Rows) != 1 {
		t.Fatalf("%v: %+v", err, r.Rows)
	}
	return r.Rows[0]
}

// TestVFPolicy: VFs of an InfiniBand card that the firmware keeps down are detected, by the files of MLNX_OFED's
// driver and by the kernel's netlink as printed by ip(8).
func TestVFPolicy(t *testing.T) {
	const policies = "sys/bus/pci/devices/0000:3b:00.0/sriov/0/policy = %\nsys/bus/pci/devices/0000:3b:00.0/sriov/1/policy = Follow\n"
	const ask = "ip -json link show dev ibp59s0"
	const links = `[{"ifindex":4,"ifname":"ibp59s0","link_type":"infiniband","vfinfo_list":[{"vf":0,"link_state":"auto"},{"vf":1,"link_state":"%"}]}]`
	with := func(s, state string) string { return strings.Replace(s, "%", state, 1) }
	for _, tt := range []struct {
		tree, says string
		want       Status
		words      string
	}{
		{infiniBandCard + with(policies, "Down"), "", Fail, "Down for 1 of 2 VFs"},
		{infiniBandCard + with(policies, "Follow"), "", OK, "2 VFs follow"},
		{infiniBandCard, with(links, "disable"), Fail, "Down for 1 of 2 VFs"},
		{infiniBandCard, with(links, "auto"), OK, "2 VFs follow"},
		{infiniBandCard, "", Unknown, "modprobe ib_ipoib"},
		{infiniBandCard, `[{"ifname":"ibp59s0"}]`, Unknown, "modprobe ib_ipoib"},
		{infiniBandCard, "{", Unknown, ""},
		{strings.Replace(infiniBandCard, "numvfs = 2", "numvfs = 0", 1), "", NotApplicable, ""},
		{strings.Replace(infiniBandCard, "link_layer = InfiniBand", "link_layer = Ethernet", 1) + with(policies, "Down"), "", NotApplicable, ""},
	} {
		programs := map[string]string{}
		if tt.says != "" {
			programs[ask] = tt.says
		}
		if r := judge(t, "rdma.vf-policy", tt.tree, programs); r.Status != tt.want || !strings.Contains(r.Found, tt.words) {
			t.Errorf("%q: %v, %q; want %v, %q", tt.says, r.Status, r.Found, tt.want, tt.words)
		}
	}
}

// TestRepresentors: representors that are in no bridge leave their VFs without a network.
func TestRepresentors(t *testing.T) {
	const card = infiniBandCard + "sys/bus/pci/devices/0000:3b:00.0/net/eth0/type = 1\nsys/class/net/ibp59s0/phys_port_name = p0\n"
	const rep = "sys/class/net/eth0/phys_port_name = pf0vf1\n"
	for _, tt := range []struct {
		tree  string
		want  Status
		words string
	}{
		{card, NotApplicable, "no card in switchdev mode"},
		{card + rep, Warn, "1 of 1 representor in no bridge"},
		{card + rep + "sys/class/net/eth0/master/ifindex = 9\n", OK, "1 representor in a bridge"},
	} {
		if r := judge(t, "rdma.representors", tt.tree, nil); r.Status != tt.want || !strings.Contains(r.Found, tt.words) {
			t.Errorf("%v, %q; want %v, %q", r.Status, r.Found, tt.want, tt.words)
		}
	}
}
