package daemon

import (
	"os"
	"testing"

	"nearmetal/test/nobody"
)

// TestIsDaemon: the daemon is a libvirtd or virtqemud run by root, not any process of that name.
func TestIsDaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, c := range []struct {
		program string
		uid     int
		want    bool
	}{
		{"libvirtd", 0, true}, {"virtqemud", 0, true}, {"libvirtd", 65534, false}, {"sleep", 0, false},
	} {
		cmd := nobody.Called(t, c.program, c.uid, "libvirtd")
		if got := isDaemon(cmd.Process.Pid); got != c.want {
			t.Errorf("%s of user %d: %v", c.program, c.uid, got)
		}
	}
}
