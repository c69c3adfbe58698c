package job

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"nearmetal/internal/backend/fake"
	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
)

// TestRunInput: the command of a run reads the user's input, and with NoInput nothing.
func TestRunInput(t *testing.T) {
	if err := fake.Works(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "nm-run") // short, because a control socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	for _, c := range []struct {
		where   Where
		noInput bool
		want    string
	}{
		{Each, false, "typed\nend\n"}, {Each, true, "end\n"},
		{OnHost, false, "typed\nend\n"}, {OnHost, true, "end\n"},
	} {
		s := &spec.Cluster{Backend: fake.Options{Dir: t.TempDir()}.Name(), Shares: []spec.Share{},
			VMs: []spec.Group{{Name: "vm", Count: 1, VCPUs: 1, Memory: 128 << 20}}}
		spec.Defaults(s)
		var out, errs bytes.Buffer
		code, err := Run(RunOptions{Cluster: cluster.Start{Spec: s}, Args: []string{"sh", "-c", "cat; echo end"}, Where: c.where,
			NoInput: c.noInput, Notice: func(string) {}}, session.Streams{In: strings.NewReader("typed\n"), Out: &out, Err: &errs})
		if err != nil || code != 0 || out.String() != c.want {
			t.Errorf("where %d, no input %v: %d, %v, %q, %q", c.where, c.noInput, code, err, out.String(), errs.String())
		}
	}
}

// TestHints: before a launcher runs a warning is printed for a library that may hang, unless it uses the region, and
// with -v for one without libfabric.
func TestHints(t *testing.T) {
	r := record(t)
	r.Fabric = "/usr/lib/nearmetal"
	for _, c := range []struct {
		device      string
		version     string
		verbose     bool
		ucx, tls    string
		overlay     int
		hangs, none bool
	}{
		{"ch4:ucx", "4.0.2", false, "", "", 0, true, false},
		{"ch4:ucx", "4.0.2", true, "", "", 0, true, true},
		{"ch4:ucx", "4.2.1", true, "", "", 0, false, true},
		{"ch4:ofi", "5.0.2", true, "", "", 0, false, false},
		{"ch4:ucx", "4.0.2", false, "ucx.so", "", 0, false, false},
		{"ch4:ucx", "4.0.2", false, "ucx.so", "ivshmem,self,sm", 0, false, false},
		{"ch4:ucx", "4.0.2", false, "ucx.so", "tcp,self", 0, true, false}, // the user's choice
		{"ch4:ucx", "4.0.2", false, "ucx.so", "", 2, true, false},         // TCP to another host
	} {
		r.UCX, r.Spec.Env, r.Overlay = c.ucx, nil, make([]state.RecordHost, c.overlay)
		for i := range r.Overlay {
			r.Overlay[i].Self = true
		}
		if c.tls != "" {
			r.Spec.Env = map[string]string{"UCX_TLS": c.tls}
		}
		var said []string
		j := &running{o: RunOptions{Args: []string{"mpiexec", "-n", "2", "app"}, Cluster: cluster.Start{Verbose: c.verbose},
			Notice: func(line string) { said = append(said, line) }}}
		j.hint(launch.Launcher{Library: launch.MPICH, Version: c.version, Device: c.device}, r)
		all := strings.Join(said, "\n")
		if strings.Contains(all, "may hang in MPI_Finalize") != c.hangs || strings.Contains(all, "MPICH "+c.version+" has no libfabric") != c.none {
			t.Errorf("%+v: %q", c, said)
		}
	}
}
