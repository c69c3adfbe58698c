package remote

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"nearmetal/internal/host/cache"
)

// A host keeps the running copy and recently used ones, and no others.
func TestKeep(t *testing.T) {
	programs := filepath.Join(t.TempDir(), "nearmetal/programs")
	for name, age := range map[string]time.Duration{"mine": 2 * cache.TreeAge, "late": cache.TreeAge / 2, "old": 2 * cache.TreeAge} {
		bin := filepath.Join(programs, name, "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, "nearmetal"), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Dir(bin), then, then); err != nil {
			t.Fatal(err)
		}
	}
	have := func() (n int) {
		list, err := os.ReadDir(programs)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if keep("/usr/bin/nearmetal"); have() != 3 {
		t.Error("a program elsewhere has removed copies")
	}
	keep(filepath.Join(programs, "mine/bin/nearmetal"))
	if _, err := os.Stat(filepath.Join(programs, "old")); err == nil || have() != 2 {
		t.Errorf("%d copies, old: %v", have(), err)
	}
}
