package run

import (
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/suite"
	"nearmetal/internal/spec"
)

// TestPair: a server and its client on two hosts are rejected if there is only one, because they would then measure
// something else.
func TestPair(t *testing.T) {
	on := func(nodes int) (*runner, error) {
		q := request(t, "echo 1 $0", "native.1")
		e := &q.Suites[0].Experiments[0]
		e.Launch, e.Hosts = suite.LaunchPair, 2
		if nodes > 0 {
			q.Variants = InJob(q.Variants, nodes)
		}
		r := &runner{request: q, record: rec(q)}
		return r, r.prepare()
	}
	for _, nodes := range []int{0, 1} {
		if _, err := on(nodes); err == nil || !strings.Contains(err.Error(), "t/one: it runs on 2 hosts and this run has 1") {
			t.Errorf("%d nodes: %v", nodes, err)
		}
	}
	r, err := on(2)
	if err != nil {
		t.Fatal(err)
	}
	if h := r.record.Cases[0].Hosts; h != 2 {
		t.Errorf("the case has %d hosts", h)
	}
	c, err := r.command(&r.exps[0], 0, 0)
	if want := "srun --mpi=none --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1"; err != nil || strings.Join(c.words[:6], " ") != want {
		t.Errorf("%q, %v", c.words, err)
	}

	// In VMs the server is named; natively srun provides its address.
	t.Setenv("SLURMD_NODENAME", "n1.site")
	v := Variant{Spec: &spec.Cluster{VMs: []spec.Group{{Name: "box", Count: 2}}}}
	list := InJob([]Variant{{}, v}, 2)
	if got := list[1].Step.pairEnv(); !slices.Equal(got, []string{"PAIR_SERVER=n1-site-box0"}) {
		t.Errorf("%q", got)
	}
	if got := list[0].Step.pairEnv(); got != nil || !slices.Contains(list[0].Step.pairWords(), "--no-vm") {
		t.Errorf("%q %q", got, list[0].Step.pairWords())
	}
}
