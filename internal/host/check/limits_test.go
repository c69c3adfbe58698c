package check

import (
	"context"
	"os"
	"testing"

	"nearmetal/test/nobody"
)

// Root's --fix raises the limit of root's daemons, not of a user's program of such a name.
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
