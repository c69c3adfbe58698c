package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAlone runs the provider's own tests of ranks without a region, and of ranks on several hosts, on the newest
// libfabric that is here: its tcp matches tagged messages by itself, 1.17's does not.
func TestAlone(t *testing.T) {
	build := filepath.Join(root(t), "build")
	library := filepath.Join(build, "venv", "mpich", "lib", "mpich")
	program := filepath.Join(build, "c", "test", "fabric", "fabric_tests")
	for _, p := range []string{filepath.Join(library, "libfabric.so.1"), program} {
		if _, err := os.Stat(p); err != nil {
			missing(t, p+" (make c wheels)")
		}
	}
	for _, part := range []string{"alone", "network", "hosts_"} {
		cmd := exec.Command(program, part)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+library,
			"FI_PROVIDER_PATH="+filepath.Join(build, "c", "fabric"),
			"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=domain")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", part, err, out)
		}
		if !strings.Contains(string(out), "are reached over tcp, device ") {
			t.Errorf("%s: the core provider was not tcp:\n%.2000s", part, out)
		}
	}
}
