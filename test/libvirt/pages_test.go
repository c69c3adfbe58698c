package libvirt

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

// VMs of huge pages, on the host's libvirtd and on a user's own. The pool is the host's: it is made larger for this
// test, and is as it was afterwards.
func TestPages(t *testing.T) {
	if os.Getenv("NEARMETAL_LIBVIRT_PAGES") == "" {
		t.Skip("changes the host's huge pages: make test-libvirt-pages")
	}
	read := func() int {
		text, err := os.ReadFile(pool)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	write := func(n int) {
		if err := os.WriteFile(pool, []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	before := read()
	t.Cleanup(func() { write(before) })
	write(before + 128 + 8)
	if n := read(); n < before+128 {
		t.Skipf("this host has no more than %d huge pages", n)
	}
	for _, s := range []*site{ofHost(t), ofUser(t, "pages", "XDG_RUNTIME_DIR=HOME/run")} {
		s.up("p", "-f", s.file("placement: {pages: 2MiB}"))
		s.nm("verify", "p").want(0, "2 MiB")
		s.nm("exec", "-c", "p", "--", "true").want(0)
		s.nm("down", "p").want(0)
		s.nothing()
		if now := read(); now != before+136 {
			t.Errorf("%d huge pages, were %d", now, before+136)
		}
	}
}
