//go:build tofu

package openstack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTofu: OpenTofu, with its provider for OpenStack, accepts every plan: the provider has each key, with its type.
func TestTofu(t *testing.T) {
	folder, err := filepath.Abs("../../../build/tofu")
	if err != nil {
		t.Fatal(err)
	}
	// valid returns the result of tofu validate for a document.
	valid := func(text []byte) (valid bool, said string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "plan.tf.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(folder, "tofu"), "-chdir="+dir, "validate", "-json")
		cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(folder, "config"), "CHECKPOINT_DISABLE=1")
		out, err := cmd.Output()
		var v struct {
			Valid bool `json:"valid"`
		}
		if json.Unmarshal(out, &v) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return v.Valid, string(out)
	}
	files, err := filepath.Glob("testdata/golden/*.tf.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no plans", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if ok, said := valid(text); !ok {
			t.Errorf("%s: %s", file, said)
		}
	}
	t.Logf("%d plans", len(files))
	if ok, _ := valid([]byte(`{"resource": {"openstack_compute_flavor_v2": {"n": {"name": "n", "ram": 1, "vcpu": 1}}}}`)); ok {
		t.Error("a key that the provider has not is taken")
	}
}
