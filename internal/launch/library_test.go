package launch

import (
	"os"
	"path/filepath"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		file, path string
		library    Library
		version    string
		major      int
		daemon     string
	}{
		{"openmpi-4.1.4", "/usr/bin/orterun", OpenMPI, "4.1.4", 4, "orted"},
		{"openmpi-5.0.11", "/opt/bin/mpirun", OpenMPI, "5.0.11", 5, "prted"},
		{"mpich-4.0.2", "/usr/bin/mpiexec.hydra", MPICH, "4.0.2", 4, "hydra_pmi_proxy"},
		{"mpich-5.0.2", "/opt/bin/mpiexec", MPICH, "5.0.2", 5, "hydra_pmi_proxy"},
		{"mvapich-4.0", "/opt/mv/bin/mpiexec", MVAPICH, "4.0", 4, "hydra_pmi_proxy"},
		{"mpich-4.0.2", "/opt/mvapich2/bin/mpiexec", MVAPICH, "4.0.2", 4, "hydra_pmi_proxy"},
		{"intel-2021.18", "/opt/intel/bin/mpirun", Intel, "2021.18", 2021, "hydra_bstrap_proxy"},
		{"prterun-moved", "/opt/bin/prterun", "", "", 0, ""},
	} {
		text, err := os.ReadFile(filepath.Join("testdata/version", c.file))
		if err != nil {
			t.Fatal(err)
		}
		lib, v, ok := classify(c.path, string(text))
		if lib != c.library || v != c.version || ok != (c.library != "") {
			t.Errorf("%s: %q %q %v", c.file, lib, v, ok)
			continue
		}
		if l := (Launcher{Library: lib, Version: v}); ok && (l.Major() != c.major || l.Daemon() != c.daemon) {
			t.Errorf("%s: %d %s", c.file, l.Major(), l.Daemon())
		}
	}
	if lib, v, ok := classify("/x/prterun", "prterun (PRRTE) 3.0.14\n"); lib != OpenMPI || v != "5" || !ok {
		t.Errorf("prterun: %q %q %v", lib, v, ok)
	}
	if _, _, ok := classify("/x/mpirun", "mpirun: unknown option --version"); ok {
		t.Error("classified without a version")
	}
}

// TestLibraryWarnings compares the warnings of a run with the launchers' own output.
func TestLibraryWarnings(t *testing.T) {
	for file, c := range map[string]struct{ hangs, without bool }{
		"mpich-4.0.2": {true, true}, "mpich-5.0.2": {}, "openmpi-4.1.4": {}, "openmpi-5.0.11": {}, "intel-2021.18": {}, "mvapich-4.0": {},
	} {
		text, err := os.ReadFile("testdata/version/" + file)
		if err != nil {
			t.Fatal(err)
		}
		lib, v, _ := classify("/x/mpirun", string(text))
		l := Launcher{Library: lib, Version: v, Device: device(lib, string(text))}
		if hangs := l.HangWarning(2) != ""; hangs != c.hangs || l.WithoutFabric() != c.without || l.HangWarning(1) != "" {
			t.Errorf("%s: %q, %q; without libfabric: %v", file, l.HangWarning(2), l.HangWarning(1), l.WithoutFabric())
		}
	}
}
