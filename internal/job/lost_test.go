package job

import (
	"fmt"
	"slices"
	"testing"
)

func TestLostLines(t *testing.T) {
	if got := (written{}).lines("gone"); got != nil {
		t.Errorf("nothing was written: %q", got)
	}
	got := written{files: []string{"vm0:/root/a\x1b[2J"}}.lines("gone")
	if want := []string{"a file that was written in a VM is in no share: gone", "  vm0:/root/a?[2J"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var w written
	for i := range 12 {
		w.files = append(w.files, fmt.Sprintf("vm0:/root/%02d", i))
	}
	got = w.lines("gone")
	if len(got) != 12 || got[0] != "12 files that were written in VMs are in no share: gone" || got[11] != "  and 2 more" {
		t.Errorf("%q", got)
	}
	w.more = true
	if got := w.lines("gone"); got[0] != "more than 12 files that were written in VMs are in no share: gone" {
		t.Errorf("%q", got[0])
	}
}
