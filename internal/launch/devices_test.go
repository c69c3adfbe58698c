package launch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestDevices: the VMs' devices determine the variables of the libraries: each device is named in every library's own
// variables, and missing devices in none.
func TestDevices(t *testing.T) {
	rail := netip.MustParsePrefix("10.78.0.0/16")
	roce := Device{RDMA: "mlx5_0", Port: "1", GID: "3", Net: "eth2", Subnet: rail}
	second := Device{RDMA: "mlx5_1", Port: "1", GID: "5", Net: "eth3", Subnet: rail}
	ib := Device{RDMA: "mlx5_0", Port: "1", InfiniBand: true, PKey: "0x8005", Net: "ib0", Subnet: rail}
	bare := Device{RDMA: "mlx5_0", Port: "1", InfiniBand: true, PKey: "0xffff"}
	igb := Device{Net: "eth2", Subnet: rail}
	soft := Device{RDMA: "rxe0", Port: "1", GID: "1", Net: "eth0", Subnet: netip.MustParsePrefix("10.77.0.0/16"), Soft: true}
	const network, device = "OMPI_MCA_btl_tcp_if_include=10.77.0.0/16", "OMPI_MCA_btl_tcp_if_include=10.78.0.0/16"
	for name, c := range map[string]struct {
		devices   []Device
		ranks     int
		want, not string // not: prefixes that must not occur
	}{
		"none": {nil, 4, network + " UCX_NET_DEVICES=eth0 FI_TCP_IFACE=eth0 FI_IVSHMEM_CORE=auto", "FI_VERBS FI_UNIVERSE UCX_IB OMPI_MCA_btl_openib FI_IVSHMEM_DEVICES"},
		"RoCE": {[]Device{roce}, 1000, device + " UCX_NET_DEVICES=mlx5_0:1 UCX_IB_GID_INDEX=3 FI_TCP_IFACE=eth2 FI_VERBS_IFACE=eth2 FI_VERBS_GID_IDX=3 " +
			"FI_IVSHMEM_CORE=verbs;ofi_rxm FI_UNIVERSE_SIZE=1000 OMPI_MCA_btl_openib_if_include=mlx5_0:1 OMPI_MCA_btl_openib_gid_index=3", "UCX_IB_PKEY"},
		"two cards":                {[]Device{roce, second}, 4, "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 FI_TCP_IFACE=eth2 FI_UNIVERSE_SIZE=256 FI_IVSHMEM_DEVICES=mlx5_0,mlx5_1", "FI_VERBS UCX_IB_GID"},
		"InfiniBand":               {[]Device{ib}, 4, "UCX_NET_DEVICES=mlx5_0:1 UCX_IB_PKEY=0x5 OMPI_MCA_btl_openib_ib_pkey=32773 FI_VERBS_IFACE=ib0 " + device, "UCX_IB_GID FI_VERBS_GID"},
		"InfiniBand without IPoIB": {[]Device{bare}, 4, "UCX_NET_DEVICES=mlx5_0:1 FI_TCP_IFACE=eth0 " + network, "UCX_IB FI_VERBS"},
		"no RDMA":                  {[]Device{igb}, 4, "UCX_NET_DEVICES=eth2 FI_TCP_IFACE=eth2 FI_IVSHMEM_CORE=auto " + device, "FI_VERBS FI_UNIVERSE UCX_IB"},
		"soft RoCE":                {[]Device{soft}, 1000, "UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1 UCX_UD_VERBS_ETH_DGID_CHECK=n FI_UNIVERSE_SIZE=64 FI_IVSHMEM_CORE=verbs;ofi_rxm FI_VERBS_IFACE=eth0 FI_VERBS_GID_IDX=1 " + network, "UCX_IB_PKEY"},
	} {
		s := setup(OnHost)
		s.Fabric, s.OtherHosts, s.Devices, s.Ranks = providerFile, true, c.devices, c.ranks
		vars, err := Env(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(strings.Fields(c.want), "FI_OFI_RXM_BUFFER_SIZE=16640") {
			if !slices.Contains(vars, w) {
				t.Errorf("%s: no %s in %q", name, w, vars)
			}
		}
		for _, prefix := range strings.Fields(c.not) {
			if i := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, prefix) }); i >= 0 {
				t.Errorf("%s: %s", name, vars[i])
			}
		}
		users := []string{"UCX_NET_DEVICES=mlx5_7:1", "FI_UNIVERSE_SIZE=9", "FI_IVSHMEM_CORE=tcp", "FI_VERBS_IFACE=ib7", "FI_IVSHMEM_DEVICES=mlx5_1"}
		if vars, err = Env(s, users); err != nil {
			t.Fatal(err)
		}
		for _, u := range users {
			prefix, _, _ := strings.Cut(u, "=")
			if slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, prefix+"=") }) {
				t.Errorf("%s: the user's %s was overridden", name, u)
			}
		}
		if vars, err = Env(s, []string{"FI_IVSHMEM_INNER=tcp"}); err != nil || slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, "FI_IVSHMEM_CORE=") }) {
			t.Errorf("%s: the user's choice by the old name was overridden: %v, %q", name, err, vars)
		}
	}
}
