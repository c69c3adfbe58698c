package device

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCarried: a card's counters of a VF are queried at its PF's interface, by the VF's number.
func TestCarried(t *testing.T) {
	root := capture(t, "s2")
	os.MkdirAll(filepath.Join(root, "links"), 0o755)
	if err := os.WriteFile(filepath.Join(root, "links", "carried.1"), []byte("123456 789\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := Open(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	if in, out, err := h.Carried("0000:41:10.2"); err != nil || in != 123456 || out != 789 {
		t.Errorf("%d, %d, %v", in, out, err)
	}
	// A card without counters for it; not a VF.
	for _, at := range []string{"0000:41:10.0", thePF, "0000:99:00.0", "../../x", ""} {
		if _, _, err := h.Carried(at); err == nil {
			t.Errorf("%q: no error", at)
		}
	}
}
