package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aliasFixture = `# Aliases extracted from modules themselves.
alias pci:v00008086d000010CAsv*sd*bc*sc*i* igbvf
alias pci:v000015B3d0000101Asv*sd*bc*sc*i* mlx5_core
alias pci:v*d*sv*sd*bc01sc08i02* nvme
alias usb:v046Dp* hid-generic
alias broken
alias pci:[ broken
`

func TestDrivers(t *testing.T) {
	ix := fixtureIndex(t)
	os.WriteFile(filepath.Join(ix.kernel.Modules, "modules.alias"), []byte(aliasFixture), 0o644)
	for _, m := range []string{"mlx5_ib", "ib_uverbs", "ib_umad"} {
		ix.files[m] = "kernel/" + m + ".ko"
	}
	got, err := ix.drivers([]string{"pci:v00008086d000010CAsv00001AF4sd00001100bc02sc00i00", "pci:v000015B3d0000101Asv000015B3sd00000000bc02sc07i00"})
	if want := "igbvf mlx5_core mlx5_ib ib_uverbs ib_umad"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"pci:v00001234d00001111sv0sd0bc03sc00i00", "", strings.Repeat("x", 5000), "usb"} {
		if got, err := ix.drivers([]string{bad}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, %v", bad, got, err)
		}
	}
}

func FuzzAliases(f *testing.F) {
	f.Add(aliasFixture, "pci:v00008086d000010CAsv00001AF4sd00001100bc02sc00i00")
	f.Fuzz(func(t *testing.T, text, alias string) {
		found, err := matchAliases(strings.NewReader(text), []string{alias})
		if err != nil {
			return
		}
		for _, m := range found[alias] {
			if !versionOK(m) || strings.ContainsAny(m, "/ \n") {
				t.Errorf("module %q", m)
			}
		}
	})
}
