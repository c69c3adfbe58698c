package spec

import (
	"strings"
	"testing"
)

// TestWritesAsRoot: the first share to which root's VMs could write is reported.
func TestWritesAsRoot(t *testing.T) {
	c := &Cluster{Shares: []Share{{Path: "/data", Mode: "ro"}, {Path: "/work", Mode: "rw"}}}
	if err := c.WritesAsRoot(); err == nil || !strings.Contains(err.Error(), "/work") || !strings.Contains(err.Error(), "--root-writes") {
		t.Errorf("%v", err)
	}
	c.RootWrites = true
	if err := c.WritesAsRoot(); err != nil {
		t.Error(err)
	}
	if err := (&Cluster{Shares: c.Shares[:1]}).WritesAsRoot(); err != nil {
		t.Error(err)
	}
}

// TestAtLeastIsolation: a site's minimum is enforced, and a stricter setting is kept.
func TestAtLeastIsolation(t *testing.T) {
	for _, c := range []struct{ has, least, want string }{
		{"", "", ""}, {"auto", "standard", "standard"}, {"", "standard", "standard"}, {"standard", "auto", "standard"},
	} {
		s := &Cluster{Isolation: c.has}
		if err := s.AtLeastIsolation(c.least); err != nil || s.Isolation != c.want {
			t.Errorf("%+v: %q, %v", c, s.Isolation, err)
		}
	}
	if err := (&Cluster{}).AtLeastIsolation("none"); err == nil {
		t.Error("a word that is none")
	}
}
