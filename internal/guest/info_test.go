package guest

import (
	"strings"
	"testing"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// TestHypervisor: known hypervisor names of the CPU are translated to nearmetal's words, and others are shortened.
func TestHypervisor(t *testing.T) {
	for said, want := range map[string]string{"KVMKVMKVM": "kvm", "TCGTCGTCGTCG": "tcg", "VMwareVMware": "vmware", "XenVMMXenVMM": "XenVMMXenVMM", "": ""} {
		if i, err := parseInfo(channel.Fields{{Key: "agent", Value: "1"}, {Key: "hypervisor", Value: said}}); err != nil || i.Hypervisor != want {
			t.Errorf("%q: %q, %v", said, i.Hypervisor, err)
		}
	}
	if _, err := parseInfo(channel.Fields{{Key: "agent", Value: "1"}, {Key: "hypervisor", Value: "a word that no CPU has"}}); err == nil {
		t.Error("a long word was taken")
	}
}

// FuzzInfo has an agent report arbitrary information: accepted values are bounded and printable.
func FuzzInfo(f *testing.F) {
	for _, h := range []channel.Fields{
		{{Key: "agent", Value: "1"}, {Key: "kernel", Value: "6.1"}, {Key: "phase", Value: "init 100"},
			{Key: "device", Value: "pci 0000:00:05.0 mlx5_core eth2 52:54:00:00:00:01 mlx5_0 - active 10.0.0.1 1 Ethernet 3 0 1500 -"}},
		{{Key: "agent", Value: "\x1b[2J"}, {Key: "phase", Value: " 1"}, {Key: "device", Value: "        "}},
	} {
		b, _ := h.Encode()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := channel.DecodeFields(b)
		if err != nil {
			return
		}
		i, err := parseInfo(h)
		if err != nil {
			if text.CleanLines(err.Error()) != err.Error() {
				t.Errorf("%q cannot be shown", err)
			}
			return
		}
		words := []string{i.Agent, i.Kernel, i.Hypervisor}
		for _, p := range i.Phases {
			words = append(words, p.Name)
			if p.At < 0 {
				t.Errorf("%+v", p)
			}
		}
		for _, d := range i.Devices {
			words = append(words, d.Kind, d.PCI, d.Driver, d.Net, d.MAC, d.RDMA, d.GUID, d.State, d.IP, d.Port, d.Layer, d.GID, d.Node, d.MTU, d.PKey)
		}
		if s := strings.Join(words, ""); text.CleanLines(s) != s || len(i.Phases) > 32 || len(i.Devices) > maxFunctions+16 {
			t.Errorf("%+v", i)
		}
	})
}
