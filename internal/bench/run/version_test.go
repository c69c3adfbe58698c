package run

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
)

func TestFindVersion(t *testing.T) {
	for _, c := range []struct {
		p          suite.Program
		text, want string
	}{
		{suite.Program{VersionMatch: `^Build *:.*OPENFOAM=(?P<value>[\w.]+)`}, "| Version:    |\nBuild  : OPENFOAM=1912 patch=200626\n", "1912"},
		{suite.Program{VersionMatch: `^# OSU.* v(?P<value>[\d.]+)`}, "\n# OSU MPI Latency Test v5.3\n# Size\n", "5.3"},
		{suite.Program{Version: []string{"x"}}, "Welcome\n solver\t 2.1 \x1b[m\n7\n", "solver 2.1 [m"},
		{suite.Program{Version: []string{"x"}}, "no number\n", ""},
		{suite.Program{}, "output 3.3\n", ""},
	} {
		if got := findVersion(&c.p, []byte(c.text)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.p, got, c.want)
		}
	}
}

// TestVersions: a program's version is in the record, from its version command or its output.
func TestVersions(t *testing.T) {
	q := request(t, "echo 8 1; echo release 7.5", "a")
	p := &q.Suites[0].Experiments[0].Programs[0]
	p.VersionMatch = `release (?P<value>\S+)`
	name := p.Name
	for _, command := range [][]string{nil, {"echo", "release 7.5"}} {
		p.Version = command
		r := rec(q)
		if _, err := Start(context.Background(), filepath.Join(t.TempDir(), "run"), q, r, Events{}); err != nil || r.Host.Versions[name] != "7.5" {
			t.Errorf("%v: %v %v", command, r.Host.Versions, err)
		}
	}
}

const said = `libfabric:5:1:ivshmem:ep_ctrl:report():29<info> channels used: 1 ranks of this VM, 654 lines, 0 direct copies; 2 ranks of other VMs, 150 lines; 0 ranks over the core provider, 0 messages
libfabric:6:1:ivshmem:ep_ctrl:report():29<info> channels used: 1 ranks of this VM, 10 lines, 3 direct copies; 1 ranks of other VMs, 1 lines; 2 ranks over the core provider, 28 messages
`

func TestChannels(t *testing.T) {
	c := channelsOf([]byte(said))
	if c == nil || *c != (record.Channels{Ranks: 2, SameVM: 2, OtherVMs: 3, Network: 2}) {
		t.Errorf("%+v", c)
	}
	if c := channelsOf([]byte("channels used: many\n")); c != nil {
		t.Errorf("%+v", c)
	}
	// A variant over the provider that did not use it has no result.
	r := &runner{record: &record.Run{}}
	x := &experiment{def: suite.Experiment{Launch: "mpi"}, names: []string{"osu/latency"}}
	over := &Variant{Variant: record.Variant{Label: "v"}, MPI: mpi.Flavour{Name: "ivshmem"}}
	if r.noteChannels(x, over, nil) == nil || r.noteChannels(x, &Variant{}, nil) != nil {
		t.Error("whether the provider was used is not looked at")
	}
	for i := 0; i < 2; i++ {
		if err := r.noteChannels(x, over, []byte(said)); err != nil || len(r.record.Channels) != 1 || r.record.Channels[0].Variant != "v" {
			t.Errorf("%+v %v", r.record.Channels, err)
		}
	}
}

// TestNatively: a native program has none of the variables that send ranks into VMs.
func TestNatively(t *testing.T) {
	t.Setenv("NEARMETAL_LAUNCH_TEST", "x")
	t.Setenv("NEARMETAL_LAUNCH", "FI_PROVIDER")
	t.Setenv("FI_PROVIDER", "ivshmem")
	env := natively([]string{"OMP_NUM_THREADS=2"})
	if slices.Contains(env, "FI_PROVIDER=ivshmem") || !slices.Contains(env, "OMP_NUM_THREADS=2") || !slices.Contains(env, "NEARMETAL_LAUNCH_TEST=x") {
		t.Errorf("%q", env)
	}
}

// FuzzProgramText: the output of programs is untrusted: neither version nor channels may be unbounded.
func FuzzProgramText(f *testing.F) {
	f.Add([]byte(said))
	f.Add([]byte("# OSU MPI Latency Test v5.3\n\xff\x1b[2J"))
	p := suite.Program{VersionMatch: `(?P<value>.*\d.*)`}
	f.Fuzz(func(t *testing.T, text []byte) {
		v := findVersion(&p, text)
		if len(v) > maxVersion || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			t.Errorf("%q", v)
		}
		if c := channelsOf(text); c != nil && (c.Ranks < 1 || c.SameVM < 0 || c.OtherVMs < 0 || c.Network < 0) {
			t.Errorf("%+v", c)
		}
	})
}
