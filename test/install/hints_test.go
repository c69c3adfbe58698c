package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a bare make says at its end: the next steps, and what the machine lacks.
func TestHints(t *testing.T) {
	hints := func(root string) string {
		t.Helper()
		cmd := exec.Command("sh", "../../scripts/hints.sh")
		cmd.Env = append(os.Environ(), "HINTS_ROOT="+root)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	root := t.TempDir()
	for _, want := range []string{"nearmetal run --vms 2", "There is no /dev/kvm", "There is no kernel in /boot"} {
		if got := hints(root); !strings.Contains(got, want) {
			t.Errorf("%q is missing: %s", want, got)
		}
	}
	for _, name := range []string{"dev/kvm", "boot/vmlinuz-6.1"} {
		os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got := hints(root); strings.Contains(got, "kvm") || strings.Contains(got, "kernel") {
		t.Errorf("nothing is missing, and yet: %s", got)
	}
}
