package slurm

import (
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/topology"
	"nearmetal/test/golden"
)

// machine opens one of the described or captured machines of test/topology.
func machine(t *testing.T, name string) *topology.Host {
	t.Helper()
	h, err := topology.Open(filepath.Join("..", "..", "test", "topology", name))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGres(t *testing.T) {
	for _, name := range []string{"r740.machine", "igb-sriov.tar.gz", "laptop.machine", "epyc-nps4.machine"} {
		g := NewGres(machine(t, name), "n1", 0)
		text := strings.Join(g.Lines(), "\n") + "\nGresTypes=" + g.Types() + "\nGres=" + g.Value() + "\n"
		for _, n := range g.Notes {
			text += "note: " + n + "\n"
		}
		golden.Check(t, "testdata/gres-"+strings.SplitN(name, ".", 2)[0]+".txt", text)
	}
}

// Checks that a VF whose group contains another device is never offered.
func TestGresSharedGroup(t *testing.T) {
	h := machine(t, "r740.machine")
	vf := h.Device("0000:3b:00.2")
	if vf == nil {
		t.Fatal("the machine has no VF 0000:3b:00.2")
	}
	h.Device("0000:3b:00.3").Group = vf.Group
	g := NewGres(h, "n1", 1<<30)
	if len(g.VFs) != 0 || !strings.Contains(strings.Join(g.Notes, "\n"), "shares IOMMU group") {
		t.Errorf("VFs %+v, notes %q", g.VFs, g.Notes)
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "0", 1000: "1000", 1 << 20: "1M", 3 << 30: "3G", 1536 << 20: "1536M"} {
		if got := size(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
