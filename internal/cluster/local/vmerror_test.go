package local

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestFromPanic(t *testing.T) {
	var lines []string
	for i := 0; i < 20; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	if got := fromPanic(lines, 3); !reflect.DeepEqual(got, []string{"line 17", "line 18", "line 19"}) {
		t.Errorf("without a panic: %q", got)
	}
	lines[5] = "[    9.1] Kernel panic - not syncing: sysrq triggered crash"
	if got := fromPanic(lines, 3); !reflect.DeepEqual(got, []string{lines[5], "line 6", "line 7"}) {
		t.Errorf("with a panic: %q", got)
	}
	if got := fromPanic(lines[:7], 3); len(got) != 3 || strings.Contains(got[0], "panic") {
		t.Errorf("a panic within the last lines: %q", got)
	}
	if got := fromPanic(nil, 3); len(got) != 0 {
		t.Errorf("nothing: %q", got)
	}
}
