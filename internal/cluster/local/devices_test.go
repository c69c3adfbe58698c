package local

import (
	"strings"
	"testing"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

func TestFunctions(t *testing.T) {
	h := &topology.Host{Devices: []topology.Device{
		{Address: "0000:41:10.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x10ca},
		{Address: "0000:41:10.2", Class: 0x020000, VendorID: 0x15b3, DeviceID: 0x101a},
		{Address: "0000:81:00.1", Class: 0x020700, VendorID: 0x15b3, DeviceID: 0x101a},
		{Address: "0000:a1:00.0", Class: 0x030200, VendorID: 0x10de, DeviceID: 0x20b0},
	}}
	dev := func(a ...string) (list []plan.Device) {
		for _, at := range a {
			list = append(list, plan.Device{Address: at})
		}
		return list
	}
	p := &plan.Plan{VMs: []plan.VM{{Devices: dev("0000:41:10.0")}, {Devices: dev("0000:41:10.2", "0000:81:00.1", "0000:a1:00.0")}}}
	s := &spec.Cluster{Network: spec.Network{DeviceSubnet: "10.78.0.0/16", DeviceMTU: 4000}}
	m := &VMs{net: &wiring.Net{}}
	got, err := m.functions(h, s, p, 1)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	if f := got[0]; !f.Net || !f.RDMA || f.Address.String() != "10.78.0.2/16" || f.Device != 0x101a {
		t.Errorf("%+v", f)
	}
	if f := got[1]; f.Net || !f.RDMA || !f.IPoIB || f.Address.String() != "10.78.0.3/16" || f.MTU != 4000 {
		t.Errorf("%+v", f)
	}
	if f := got[2]; f.Net || f.RDMA || f.Address.IsValid() {
		t.Errorf("%+v", f)
	}
	// On another host of the job, each address differs from the first host's.
	m.net.Joined = &wiring.Joined{Overlay: &wiring.Overlay{Self: 2}}
	seen := map[string]bool{"10.78.0.1/16": true, "10.78.0.2/16": true, "10.78.0.3/16": true}
	for vm := range p.VMs {
		fs, err := m.functions(h, s, p, vm)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			if a := f.Address.String(); f.Address.IsValid() && seen[a] {
				t.Errorf("%s twice", a)
			} else {
				seen[a] = true
			}
		}
	}
	if !seen["10.78.0.9/16"] {
		t.Error(seen)
	}
	m.net.Joined = nil
	s.Network.DeviceSubnet = "10.78.0.0/30"
	if _, err := m.functions(h, s, p, 1); err == nil || !strings.Contains(err.Error(), "too few addresses") {
		t.Errorf("%v", err)
	}
	p.VMs[0].Devices[0].Address = "0000:ff:00.0"
	s.Network.DeviceSubnet = "10.78.0.0/16"
	if _, err := m.functions(h, s, p, 0); err == nil || !strings.Contains(err.Error(), "has gone") {
		t.Errorf("%v", err)
	}
}

// Whatever driver makes an RDMA device on the host makes one in the VM, which is waited for. A card that was handed
// over shows nothing: there its ID decides.
func TestFunctionsWithRDMA(t *testing.T) {
	h := &topology.Host{Devices: []topology.Device{
		{Address: "0000:17:00.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x1593, Driver: "ice", Net: []string{"ens1f0"}, RDMA: []string{"irdma0"}},
		{Address: "0000:17:01.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x1889, Driver: "vfio-pci", PF: "0000:17:00.0"},
		{Address: "0000:18:00.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x1592, Driver: "vfio-pci"},
		{Address: "0000:31:00.0", Class: 0x020000, VendorID: 0x14e4, DeviceID: 0x1750, Driver: "bnxt_en", RDMA: []string{"bnxt_re0"}},
		{Address: "0000:31:02.0", Class: 0x020000, VendorID: 0x14e4, DeviceID: 0x1806, PF: "0000:31:00.0"},
		{Address: "0000:41:00.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x10c9, Driver: "igb", RDMA: []string{"rxe0"}},
		{Address: "0000:41:10.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x10ca, PF: "0000:41:00.0"},
		{Address: "0000:51:00.0", Class: 0x020000, VendorID: 0x1d0f, DeviceID: 0xefa1, Driver: "vfio-pci"},
		{Address: "0000:61:00.0", Class: 0x020800, VendorID: 0x8086, DeviceID: 0x24f0, Driver: "vfio-pci"},
		{Address: "0000:71:00.0", Class: 0x028000, VendorID: 0x15b3, DeviceID: 0x1003, Driver: "mlx4_core", RDMA: []string{"mlx4_0"}},
		{Address: "0000:71:00.1", Class: 0x028000, VendorID: 0x15b3, DeviceID: 0x1004, PF: "0000:71:00.0"},
		{Address: "0000:91:00.0", Class: 0x028000, VendorID: 0x8086, DeviceID: 0x2723},
	}}
	type makes struct{ net, rdma, ipoib bool }
	for _, tt := range []struct {
		at       string
		allowTCP bool
		want     makes
	}{
		{"0000:17:01.0", false, makes{net: true, rdma: true}}, // E810: irdma
		{"0000:17:01.0", true, makes{net: true}},
		{"0000:18:00.0", false, makes{net: true, rdma: true}},
		{"0000:31:02.0", false, makes{net: true, rdma: true}},   // BCM57508: bnxt_re
		{"0000:41:10.0", false, makes{net: true}},               // soft RoCE on the card is no driver's
		{"0000:51:00.0", false, makes{rdma: true}},              // EFA has no network interface
		{"0000:61:00.0", false, makes{rdma: true, ipoib: true}}, // Omni-Path
		{"0000:71:00.1", false, makes{rdma: true, ipoib: true}}, // ConnectX-3
		{"0000:71:00.1", true, makes{rdma: true, ipoib: true}},
		{"0000:91:00.0", false, makes{}}, // a wireless card
	} {
		p := &plan.Plan{VMs: []plan.VM{{Devices: []plan.Device{{Address: tt.at}}}}}
		s := &spec.Cluster{Network: spec.Network{DeviceSubnet: "10.78.0.0/16", AllowTCP: tt.allowTCP}}
		got, err := (&VMs{net: &wiring.Net{}}).functions(h, s, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := got[0]
		if (makes{f.Net, f.RDMA, f.IPoIB}) != tt.want || f.Address.IsValid() != (f.Net || f.IPoIB) {
			t.Errorf("%s, TCP allowed %v: %+v, want %+v", tt.at, tt.allowTCP, f, tt.want)
		}
	}
}

// devicesOfTwo is the record of two VMs with two functions each, and their host.
func devicesOfTwo() (state.Record, *topology.Host) {
	h := &topology.Host{Devices: []topology.Device{
		{Address: "0000:41:10.0", Class: 0x020000, VendorID: 0x15b3, DeviceID: 0x101a},
		{Address: "0000:41:10.2", Class: 0x020000, VendorID: 0x15b3, DeviceID: 0x101a},
	}}
	both := []plan.Device{{Address: "0000:41:10.0"}, {Address: "0000:41:10.2"}}
	has := []guest.Device{{Kind: "pci", Net: "eth2", RDMA: "mlx5_0", IP: "10.78.0.1"}, {Kind: "pci", Net: "eth3", RDMA: "mlx5_1", IP: "10.78.0.2"}}
	return state.Record{
		Spec: &spec.Cluster{Network: spec.Network{DeviceSubnet: "10.78.0.0/16"}},
		Plan: &plan.Plan{VMs: []plan.VM{{Devices: both}, {Devices: both}}},
		VMs:  []state.VMRecord{{Name: "vm0", Devices: has}, {Name: "vm1", Devices: has}},
	}, h
}
