package commands

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nearmetal/internal/backend/fake"
	"nearmetal/internal/cluster"
	"nearmetal/internal/spec"
)

var program string // nearmetal's

func TestMain(m *testing.M) {
	path, err := filepath.Abs("../../build/nearmetal")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no build/nearmetal: run make go first")
		os.Exit(1)
	}
	program = path
	os.Exit(m.Run())
}

// lab makes a directory of clusters for the test.
func lab(t *testing.T) {
	t.Helper()
	if err := fake.Works(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "nm-cmd") // a control socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	t.Setenv("NEARMETAL_CLUSTER", "")
}

// up starts a cluster of n VMs that are processes. It ends with the test.
func up(t *testing.T, name string, n int) *cluster.Cluster {
	t.Helper()
	return upWith(t, name, n, cluster.Start{})
}

// upWith is up with options.
func upWith(t *testing.T, name string, n int, o cluster.Start) *cluster.Cluster {
	t.Helper()
	s := &spec.Cluster{Name: name, Backend: fake.Options{Dir: t.TempDir()}.Name(), Shares: []spec.Share{},
		VMs: []spec.Group{{Name: "vm", Count: n, VCPUs: 1, Memory: 128 << 20}}}
	if o.Spec != nil { // only its VMs
		s.VMs = o.Spec.VMs
	}
	spec.Defaults(s)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Spec = s
	c, err := cluster.Up(ctx, o, cluster.Events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Down(context.Background()) })
	return c
}

// answer runs a command line and returns its output, its errors and its status.
func answer(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var o, e bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}
