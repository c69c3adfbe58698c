package check

import "testing"

// TestPlainValue: a host's own values are used in a command only if they are numbers, because an administrator copies
// the commands that undo a change.
func TestPlainValue(t *testing.T) {
	for said, want := range map[string]string{"True(1)": "1", "False(0)": "0", "16": "16", "": "", "N/A": "", "1';reboot;'(2)": "", "$(reboot)": "", "a(1)b(2)": ""} {
		if got := plainValue(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
