package state

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// Checks that the path of messages follows from the agents' reports, and that a faulty device is not used.
func TestWays(t *testing.T) {
	say := func(r Record) string {
		var s []string
		for _, w := range r.Ways() {
			s = append(s, w.Between+": "+w.By)
		}
		return strings.Join(s, "; ")
	}
	r := devicesOfTwo()
	r.Fabric = "libivshmem-fi.so"
	r.Plan.Region = &plan.Region{SizeBytes: 64 << 20}
	for i := range r.VMs {
		r.VMs[i].Devices = []guest.Device{{Kind: "pci", Net: "eth2", RDMA: "mlx5_0", Port: "1", Layer: "Ethernet", GID: "3", IP: fmt.Sprint("10.78.0.", i+1)}}
	}
	if got := say(r); got != "VMs: the region of 64MiB" {
		t.Error(got)
	}
	d := r.Devices()
	if len(d) != 1 || d[0].RDMA != "mlx5_0" || d[0].GID != "3" || d[0].Subnet.String() != "10.78.0.0/16" || d[0].InfiniBand || d[0].Soft {
		t.Errorf("%+v", d)
	}
	r.Overlay = []RecordHost{{Name: "n1", Self: true, Joined: true}, {Name: "n2", Joined: true, DevicesReached: true}}
	if got := say(r); got != "VMs of one host: the region of 64MiB; VMs of different hosts: verbs over mlx5_0 port 1 (RoCE v2, GID 3)" {
		t.Error(got)
	}
	r.Overlay[1].DeviceFault = "no answer"
	if got := say(r); !strings.HasSuffix(got, "; VMs of this host and of n2: at fault: no answer") {
		t.Error(got)
	}
	faulty := r
	faulty.DeviceFaults = []string{"mlx5_0 has no link"}
	if got := say(faulty); faulty.Devices() != nil || !strings.Contains(got, "TCP over the VMs' network, since mlx5_0 has no link") {
		t.Error(got)
	}
	igb := r
	igb.Fabric, igb.Overlay = "", nil
	igb.VMs = []VMRecord{{Devices: []guest.Device{{Net: "eth2", IP: "10.78.0.1"}}}, {Devices: []guest.Device{{Net: "eth2", IP: "10.78.0.2"}}}}
	if got := say(igb); got != "VMs: TCP over eth2" {
		t.Error(got)
	}
	igb.VMs[1].Devices = nil
	if got := say(igb); got != "VMs: TCP over the VMs' network" {
		t.Error(got)
	}
	// A region that is promised but not planned is only for programs that ask for it.
	igb.Plan, igb.Promised, igb.Spec = nil, 64<<20, &spec.Cluster{}
	if got := say(igb); !strings.Contains(got, "VMs' network; the backend promises a region of 64MiB, for programs with") {
		t.Error(got)
	}
	igb.Spec.Env = map[string]string{"FI_PROVIDER": "ivshmem"}
	if got := say(igb); got != "VMs of one host: the region of 64MiB that their backend promises" {
		t.Error(got)
	}
}

// devicesOfTwo returns the record of two VMs with two functions each.
func devicesOfTwo() Record {
	both := []plan.Device{{Address: "0000:41:10.0"}, {Address: "0000:41:10.2"}}
	has := []guest.Device{{Kind: "pci", Net: "eth2", RDMA: "mlx5_0", IP: "10.78.0.1"}, {Kind: "pci", Net: "eth3", RDMA: "mlx5_1", IP: "10.78.0.2"}}
	return Record{
		Spec: &spec.Cluster{Network: spec.Network{DeviceSubnet: "10.78.0.0/16"}},
		Plan: &plan.Plan{VMs: []plan.VM{{Devices: both}, {Devices: both}}},
		VMs:  []VMRecord{{Name: "vm0", Devices: has}, {Name: "vm1", Devices: has}},
	}
}
