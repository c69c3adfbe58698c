package commands

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/cluster"
)

// A cluster that is kept gets another name: under that alone it is found, read and ended, and no other's is taken.
func TestRename(t *testing.T) {
	lab(t)
	c := upWith(t, "first", 2, cluster.Start{Kept: true})
	upWith(t, "other", 1, cluster.Start{Kept: true})
	up(t, "run", 1)
	do := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := answer(t, args...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%q: %d, %q, %q; want %d, %q", args, got, out, errs, code, want)
		}
	}
	do(2, "rename needs NEW", "rename", "first")
	do(2, "is about a whole cluster", "rename", "first/vm0", "x")
	do(2, "NEW: ", "rename", "first", "../x")
	do(125, `no cluster "none" runs`, "rename", "none", "x")
	do(125, `a cluster called "other" runs already`, "rename", "first", "other")
	do(125, `a cluster called "first" runs already`, "rename", "first", "first")
	do(125, "only one of nearmetal up can be renamed", "rename", "run", "x")
	do(0, "", "rename", "first", "second")
	if c.Name() != "second" || c.Record().Spec.Name != "second" || c.Record().Plan.Cluster != "second" {
		t.Errorf("the owner's record: %s, %s, %s", c.Name(), c.Record().Spec.Name, c.Record().Plan.Cluster)
	}
	do(125, `no cluster "first" runs`, "exec", "first/vm1", "--", "true")
	do(0, "it is\n", "exec", "second/vm1", "--", "echo", "it is")
	do(0, "fake VM vm1 is up", "logs", "second/vm1")
	do(0, "/second/", "env", "second")
	do(0, "", "pause", "second")
	do(0, "paused", "ps", "second")
	do(0, "", "rename", "second", "third") // paused, and once more
	do(0, "", "resume", "third")
	base := os.Getenv("NEARMETAL_RUNTIME_DIR")
	for name, want := range map[string]bool{"first": false, "second": false, "third": true} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != want {
			t.Errorf("directory %s: %v", name, err)
		}
	}
	t.Setenv("NEARMETAL_CLUSTER", "other")
	do(0, "this shell still has the name other: eval $(nearmetal env first)", "rename", "other", "first")
	go func() {
		<-c.Asked()
		c.Down(context.Background())
	}()
	do(0, "", "down", "third")
	if _, err := os.Stat(filepath.Join(base, "third")); err == nil {
		t.Error("its directory is left")
	}
}
