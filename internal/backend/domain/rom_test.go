package domain

import (
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"
)

// A function that is added has no option ROM if the plan hides it. A function that the domain has keeps its own.
func TestHideROM(t *testing.T) {
	d := &libvirtxml.Domain{Type: "kvm", Devices: &libvirtxml.DomainDeviceList{}}
	for i, hide := range []bool{true, false} {
		a, err := address([]string{"0000:41:00.0", "0000:42:00.0"}[i])
		if err != nil {
			t.Fatal(err)
		}
		place(d, a, at(uint(i), 0), hide)
		place(d, a, at(uint(i), 0), !hide)
	}
	text, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, `<rom bar="off">`); n != 1 || len(d.Devices.Hostdevs) != 2 || d.Devices.Hostdevs[0].ROM == nil {
		t.Errorf("%d\n%s", n, text)
	}
}
