package install

import (
	"os/exec"
	"strings"
	"testing"
)

// A client that says the cause first and then names a hundred files: the cause is shown, beside its last lines.
func TestFetchShowsCause(t *testing.T) {
	client := `echo "dpkg: error processing archive /tmp/a.deb (--unpack):"; echo " cannot access archive"
		for i in $(seq 100); do echo "  /tmp/$i.deb"; done; echo "E: dpkg returned an error code (1)"; exit 1`
	cmd := exec.Command("sh", "-c", `. ../../scripts/fetch.sh; FETCH_TRIES=1; fetch_try apt-get sh -c "$1"`, "sh", client)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("a client that fails has succeeded")
	}
	for _, want := range []string{"apt-get: try 1 of 1 failed:", "dpkg: error processing archive /tmp/a.deb", " cannot access archive", "  /tmp/100.deb", "E: dpkg returned"} {
		if strings.Count(string(out), want) != 1 {
			t.Errorf("%q does not stand there once:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "/tmp/1.deb") {
		t.Errorf("all of it is shown:\n%s", out)
	}
}
