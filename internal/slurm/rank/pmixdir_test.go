package rank

import (
	"strings"
	"testing"
)

func TestTmpFS(t *testing.T) {
	for conf, want := range map[string]string{
		"":                 "/tmp",
		"TmpFS=/scratch\n": "/scratch",
		"#TmpFS=/no\n tmpfs = \"/x/%n/%h\" # y\n": "/x/n1/host",
		"NodeName=a TmpDisk=3\n":                  "/tmp",
	} {
		if got := tmpFS(strings.NewReader(conf), "host", "n1"); got != want {
			t.Errorf("%q: %q, want %q", conf, got, want)
		}
	}
}
