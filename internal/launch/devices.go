package launch

import (
	"net/netip"
	"strconv"
	"strings"
)

// Device is a device that every VM has, by which VMs on different hosts reach each other.
type Device struct {
	RDMA       string       // RDMA device: mlx5_0; "": none, TCP over Net
	Port       string       // port of the RDMA device: 1
	InfiniBand bool         // link layer of the port is InfiniBand, otherwise Ethernet (RoCE)
	GID        string       // index of the port's GID for RoCE v2; "": unknown
	PKey       string       // P_Key of an InfiniBand port, 0xffff; "": unknown
	Net        string       // network interface; "": none
	Subnet     netip.Prefix // of Net's address; not valid: none
	Soft       bool         // soft RoCE, on an interface of the VMs' network
}

// Limits of the resources that a rank reserves for the others.
const (
	// leastUniverse is libfabric's default for FI_UNIVERSE_SIZE, the number of ranks for which ofi_rxm sizes its queues.
	leastUniverse = 256
	// softUniverse keeps the queues within the 32,767 entries of a queue of rdma_rxe: 256 per rank.
	softUniverse = 64
)

// defaultPKey is the partition of which every port is a member.
const defaultPKey = 0x7fff

// rdma returns the devices with verbs.
func (s *Setup) rdma() []Device {
	var list []Device
	for _, d := range s.Devices {
		if d.RDMA != "" {
			list = append(list, d)
		}
	}
	return list
}

// ways returns the variables that send messages between VMs over their devices: verbs on an RDMA device, TCP over a
// device's interface if it has no verbs, and the VMs' network if no device exists. Libraries must not use other
// interfaces: the uplink's address is the same in every VM and would be considered a route to the others (MPICH uses
// a different interface for each rank of a VM if libfabric offers more than one). UCX_TLS is not set: UCX finds
// shared memory within a VM on its own, and MPICH 4.0 hangs at its end when tcp is forced between ranks of one VM.
func ways(s Setup) []variable {
	tcp, subnet, ucx := s.Interface, s.Subnet, []string{}
	for i := len(s.Devices) - 1; i >= 0; i-- {
		if d := s.Devices[i]; d.Net != "" && d.Subnet.IsValid() {
			tcp, subnet = d.Net, d.Subnet
		}
	}
	verbs := s.rdma()
	for _, d := range verbs {
		ucx = append(ucx, d.RDMA+":"+d.Port)
	}
	if len(ucx) == 0 {
		for _, d := range s.Devices {
			if d.Net != "" && d.Subnet.IsValid() && !d.Soft {
				ucx = append(ucx, d.Net)
			}
		}
	}
	if len(ucx) == 0 {
		ucx = append(ucx, s.Interface)
	}
	vars := []variable{
		{"OMPI_MCA_btl_tcp_if_include", subnet.Masked().String(), false},
		{"UCX_NET_DEVICES", strings.Join(ucx, ","), false},
		{"FI_TCP_IFACE", tcp, false},
		{"FI_SOCKETS_IFACE", tcp, false},
		{"FI_UDP_IFACE", tcp, false},
	}
	if len(verbs) == 0 {
		return vars
	}
	var ports []string
	for _, d := range verbs {
		ports = append(ports, d.RDMA+":"+d.Port)
	}
	universe := max(leastUniverse, s.Ranks)
	if verbs[0].Soft {
		universe = softUniverse
		// UCX establishes connections over an unreliable queue. It drops packets that arrive there over IPv4, because
		// rdma_rxe does not mark a completion as IPv4 and UCX then looks for its own address at the wrong offset
		// (seen in 1.13).
		vars = append(vars, variable{"UCX_UD_VERBS_ETH_DGID_CHECK", "n", false})
	}
	vars = append(vars,
		variable{"OMPI_MCA_btl_openib_if_include", strings.Join(ports, ","), false},
		variable{"FI_UNIVERSE_SIZE", strconv.Itoa(universe), false})
	switch {
	case len(verbs) > 1:
		// UCX and btl openib choose the device nearest to a rank themselves. libfabric uses its first one, so the
		// provider chooses for it.
		var names []string
		for _, d := range verbs {
			names = append(names, d.RDMA)
		}
		vars = append(vars, variable{"FI_IVSHMEM_DEVICES", strings.Join(names, ","), false})
	case verbs[0].Net != "":
		vars = append(vars, variable{"FI_VERBS_IFACE", verbs[0].Net, false})
	}
	if gid := same(verbs, func(d Device) string { return d.GID }); gid != "" && !verbs[0].InfiniBand {
		vars = append(vars, variable{"FI_VERBS_GID_IDX", gid, false}, variable{"OMPI_MCA_btl_openib_gid_index", gid, false},
			variable{"UCX_IB_GID_INDEX", gid, false})
	}
	if key := same(verbs, func(d Device) string { return d.PKey }); verbs[0].InfiniBand && key != "" {
		if n, err := strconv.ParseUint(key, 0, 16); err == nil && n&defaultPKey != defaultPKey && n != 0 {
			vars = append(vars, variable{"UCX_IB_PKEY", "0x" + strconv.FormatUint(n&defaultPKey, 16), false},
				variable{"OMPI_MCA_btl_openib_ib_pkey", strconv.FormatUint(n, 10), false})
		}
	}
	return vars
}

// same returns the value of of that all devices share, or "" if they differ.
func same(list []Device, of func(Device) string) string {
	for _, d := range list {
		if of(d) != of(list[0]) {
			return ""
		}
	}
	return of(list[0])
}
