package topology

import (
	"path/filepath"
	"reflect"
	"testing"

	"nearmetal/test/golden"
)

// A tree captured on a real kernel with an SR-IOV card, of which two VFs are bound to vfio-pci.
func TestCaptured(t *testing.T) {
	h, err := Open(machines + "/igb-sriov.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	sane(t, h)
	pf, vf := h.Device("0000:41:00.0"), h.Device("0000:41:10.2")
	if pf == nil || vf == nil {
		t.Fatalf("%+v", h.Devices)
	}
	want := Device{Address: "0000:41:00.0", Class: 0x020000, VendorID: 0x8086, DeviceID: 0x10c9, Driver: "igb", Node: 1, Root: "pci0000:40",
		Bridges: []string{"0000:40:00.0"}, Group: 7, VFs: []string{"0000:41:10.0", "0000:41:10.2"}, TotalVFs: 7, Net: []string{"eth0"}, BARs: []uint64{131072, 131072, 16384}}
	if !reflect.DeepEqual(*pf, want) {
		t.Errorf("%+v\nwant\n%+v", *pf, want)
	}
	if vf.PF != pf.Address || vf.Driver != "vfio-pci" || vf.Group != 9 || vf.Node != 1 || vf.Root != pf.Root {
		t.Errorf("%+v", *vf)
	}
}

// The text of each machine, as users see it.
func TestText(t *testing.T) {
	for _, name := range []string{"isolated", "tr2990wx", "xeonmax-hbm", "c6100", "slurm-job"} {
		h, err := Open(machines + "/" + name + ".machine")
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", name+".golden"), h.Text())
	}
}
