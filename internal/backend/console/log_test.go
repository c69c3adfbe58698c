package console

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	l := Log(filepath.Join(t.TempDir(), "log"))
	if got := l.LastLines(3); got != nil {
		t.Errorf("a log that is not there: %q", got)
	}
	l.Say("a")
	l.Say("b\x1b[31m %s", "c\nd\x07")
	l.Say("e")
	want := []string{`b c d\a`, "e"}
	if got := l.LastLines(2); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	long := strings.Repeat("x", 2*logLineMax)
	for range 2 * LogMax / 4000 {
		l.Say("%s", long)
	}
	st, err := os.Stat(string(l))
	if err != nil || st.Size() < LogMax || st.Size() > LogMax+2*logLineMax {
		t.Errorf("a full log: %v bytes, %v", st.Size(), err)
	}
	if got := l.LastLines(1); len(got) != 1 || !strings.HasPrefix(got[0], "xxx") {
		t.Errorf("the last line of a full log: %.20q", got)
	}
	Log("").Say("nowhere")
}
