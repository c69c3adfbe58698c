package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDist makes the source tarball twice: the same bytes, and in them what a build needs.
func TestDist(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("no git repository: a tarball's own tree makes no tarball")
	}
	version, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	name := "nearmetal-" + strings.TrimSpace(string(version))
	var made [2][]byte
	for i := range made {
		dir := t.TempDir()
		if out, err := exec.Command("sh", "../../scripts/dist.sh", dir).CombinedOutput(); err != nil {
			t.Fatalf("dist.sh: %v\n%s", err, out)
		}
		if made[i], err = os.ReadFile(filepath.Join(dir, name+".tar.gz")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("the second tarball has other bytes than the first")
	}
	list := exec.Command("tar", "-tz")
	list.Stdin = bytes.NewReader(made[0])
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"Makefile", "go.mod", "meson.build", "VERSION", "LICENSE", "THIRD_PARTY.md"} {
		if !strings.Contains(string(out), "\n"+name+"/"+file+"\n") {
			t.Errorf("%s is not in the tarball", file)
		}
	}
	for _, file := range strings.Fields(string(out)) {
		if !strings.HasPrefix(file, name+"/") || strings.HasPrefix(file, name+"/build/") {
			t.Errorf("the tarball contains %s", file)
		}
	}
}
