package check

import (
	"context"
	"os"
	"testing"

	"nearmetal/test/nobody"
)

// TestLockers: root's --fix raises the limit of root's daemons, but not of a user's program with such a name.
func TestLockers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	pid := nobody.Called(t, "virtqemud", 65534, "virtqemud").Process.Pid
	f, err := newFacts(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, l := range f.lockers() {
		if l.pid == pid {
			t.Errorf("a user's %s is taken for the daemon", l.name)
		}
	}
	if f.ofRoot(pid) || !f.ofRoot(1) {
		t.Error("whose processes are")
	}
}
