package hosttree

import (
	"os"
	"testing"
)

// Dir returns an empty directory for a host's tree, which ends with the test: in memory where that can be had,
// since a tree has thousands of small files.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nm-tree-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
