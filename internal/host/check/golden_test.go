package check

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/hosttree"
)

var update = flag.Bool("update", false, "write the golden files")

// answers are the outputs of programs in the golden reports.
var answers = map[string]string{
	qemuProgram + " -version":         "QEMU emulator version 8.2.0 (test)\nCopyright",
	qemuProgram + " -help":            "usage\n-sandbox on[,obsolete=allow|deny]\n",
	qemuProgram + " -device help":     "name \"pxb-pcie\", bus PCI\nname \"vfio-pci\", bus PCI\n",
	"mstconfig -d 0000:3b:00.0 query": "Device #1:\n  SRIOV_EN      False(0)\n* NUM_OF_VFS    8\n  LINK_TYPE_P1  IB(1)\n",
	"dcb pfc show dev ens1":           "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:off 7:off\n",
	"mstconfig -d 0000:21:00.0 query": "SRIOV_EN True(1)\nNUM_OF_VFS 8\n",
}

func answering(_ context.Context, name string, args ...string) ([]byte, error) {
	if s, ok := answers[name+" "+strings.Join(args, " ")]; ok {
		return []byte(s), nil
	}
	return nil, errors.New("not known here")
}

// redHat answers as a Red Hat host: its QEMU is at another path, and lacks devices.
func redHat(_ context.Context, name string, args ...string) ([]byte, error) {
	switch name + " " + strings.Join(args, " ") {
	case qemuRedHatPath + " -version":
		return []byte("QEMU emulator version 9.1.0 (qemu-kvm-9.1.0-15.el9_6)\nCopyright"), nil
	case qemuRedHatPath + " -help":
		return []byte("usage\n-sandbox on[,obsolete=allow|deny]\n"), nil
	case qemuRedHatPath + " -device help":
		return []byte("name \"pxb-pcie\", bus PCI\nname \"vfio-pci\", bus PCI\nname \"nvdimm\", desc \"DIMM memory module\"\nname \"vhost-user-fs-pci\", bus PCI\n"), nil
	case "/usr/libexec/virtiofsd --version":
		return []byte("virtiofsd 1.13.0\n"), nil
	}
	if name == qemuProgram || name == "virtiofsd" {
		return nil, errNoProgram
	}
	return nil, errors.New("not known here")
}

// TestReports compares a report of each profile, as text and as JSON, of described hosts.
func TestReports(t *testing.T) {
	const test = "../../../test/"
	for _, tt := range []struct {
		name, machine, attrs string
		profile              Profile
	}{
		{"vm-host", "dl380g8", "untuned", VMHost},
		{"slurm-node", "r740", "tuned", SlurmNode},
		{"roce", "r740", "tuned", RoCE},
		{"guest", "laptop", "vm", Guest},
		{"all", "r740", "tuned", ""},
		{"rhel9", "r740", "rhel9", VMHost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := hosttree.Dir(t)
			if err := hosttree.Write(dir, test+"topology/"+tt.machine+".machine", test+"hosttree/"+tt.attrs+".attrs"); err != nil {
				t.Fatal(err)
			}
			command := answering
			if tt.name == "rhel9" {
				command = redHat
			}
			r, err := Run(context.Background(), Options{Root: dir, Profile: tt.profile, Command: command})
			if err != nil {
				t.Fatal(err)
			}
			r.Root = "/tree"
			golden(t, tt.name+".txt", Text{Columns: 80}.Report(&r))
			b, err := json.MarshalIndent(r, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name+".json", string(b)+"\n")
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%s: %v; got\n%s", name, err, got)
	}
}

// TestWidth: no line of text is wider than the terminal, unless it is a single word.
func TestWidth(t *testing.T) {
	r, err := Run(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, columns := range []int{40, 80, 132} {
		for _, line := range strings.Split((Text{Columns: columns, All: true}).Report(&r), "\n") {
			words := strings.Fields(line)
			if len([]rune(line)) > columns && len(words) > 1 && len(words[len(words)-1]) < 20 {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
}
