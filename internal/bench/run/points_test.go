package run

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/suite"
)

// TestJobRanks: a job has a rank for each core of all its nodes, or if ranks have threads, one per that many cores.
func TestJobRanks(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	picked, err := suite.Select(list, []string{"namd/stmv"})
	if err != nil {
		t.Fatal(err)
	}
	e := &picked[0].Experiments[0]
	v := &Variant{Step: &Step{Nodes: 4}}
	v.Cores = 44
	for threads, ranks := range map[string]string{"1": "176", "22": "8", "44": "4"} {
		q := &Request{Variants: []Variant{*v}, Set: map[string][]string{"threads": {threads}}}
		points, err := q.points(e, 44, true)
		if err != nil || len(points) != 1 {
			t.Fatal(points, err)
		}
		values, err := q.values(e, points[0], v)
		if err != nil || values["ranks"] != ranks || values["threads"] != threads || values["nodes"] != "4" {
			t.Errorf("%s threads: %v, %v", threads, values, err)
		}
	}
}

// shippedExperiment returns an experiment of a shipped suite.
func shippedExperiment(t *testing.T, name string) *suite.Experiment {
	t.Helper()
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	picked, err := suite.Select(list, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return &picked[0].Experiments[0]
}

// inJob returns a request on a number of nodes with that many cores each, natively and in VMs of a GiB per core.
func inJob(nodes, cores int) *Request {
	q := &Request{Variants: []Variant{{Step: &Step{Nodes: nodes}}, {Step: &Step{Nodes: nodes, VM: true, HasVM: true}}}}
	for i := range q.Variants {
		q.Variants[i].Cores = cores
	}
	q.Variants[1].Kind, q.Variants[1].MemoryBytes = "vm", int64(cores)<<30
	return q
}

// TestPapersPoints: the papers' own points can be requested in a job, and are laid out as requested; an impossible
// one is an error before anything runs.
func TestPapersPoints(t *testing.T) {
	for _, c := range []struct {
		experiment   string
		nodes, cores int
		paper        string
		set          map[string][]string
		want         string // points, or a part of the error
	}{
		{"lammps/eam", 8, 16, "", nil, "[nodes=8]"},
		{"lammps/eam", 8, 16, "", map[string][]string{"ranks": {"8..128"}}, "[nodes=8 ranks=8 nodes=8 ranks=16 nodes=8 ranks=32 nodes=8 ranks=64 nodes=8 ranks=128]"},
		{"lammps/eam", 8, 16, "000", nil, "[nodes=8 ranks=8 nodes=8 ranks=16 nodes=8 ranks=32 nodes=8 ranks=64 nodes=8 ranks=128]"},
		{"lammps/eam", 8, 16, "", map[string][]string{"ranks": {"256"}}, "256 cores and the job has at most 128"},
		{"npb/cg", 8, 12, "", map[string][]string{"ranks": {"64"}, "class": {"C"}}, "[class=C nodes=8 ranks=64]"},
		{"npb/bt", 8, 12, "004", map[string][]string{"class": {"D"}}, "[class=D nodes=8 ranks=81]"},
		{"npb/bt", 8, 12, "", map[string][]string{"ranks": {"81"}, "class": {"C"}}, "[class=C nodes=8 ranks=81]"},
		{"npb/lu", 8, 12, "004", map[string][]string{"class": {"D"}}, "[class=D nodes=8 ranks=64]"},
		{"npb/lu", 8, 12, "", map[string][]string{"ranks": {"81", "96"}, "class": {"C"}}, "[class=C nodes=8 ranks=81 class=C nodes=8 ranks=96]"},
		{"npb/cg", 8, 12, "", map[string][]string{"ranks": {"81"}, "class": {"C"}}, "power of 2, and 81 is none: ask for 64 or 128"},
		{"npb/cg", 8, 12, "", map[string][]string{"ranks": {"96"}, "class": {"C"}}, "power of 2, and 96 is none: ask for 64 or 128"},
		{"npb/bt", 8, 12, "", map[string][]string{"ranks": {"96"}, "class": {"C"}}, "square, and 96 is none: ask for 81 or 100"},
		{"npb/cg", 8, 12, "", map[string][]string{"class": {"C"}}, "[class=C nodes=8]"},
		{"hpl/linpack", 8, 12, "", map[string][]string{"n": {"100000"}, "grid": {"8x12"}}, "[grid=8x12 n=100000 nodes=8 threads=1]"},
		{"hpl/linpack", 8, 12, "004", map[string][]string{"n": {"100000"}}, "[grid=2x4 n=100000 nodes=8 threads=rest grid=4x4 n=100000 nodes=8 threads=rest grid=6x8 n=100000 nodes=8 threads=rest grid=8x12 n=100000 nodes=8 threads=rest]"},
	} {
		q := inJob(c.nodes, c.cores)
		q.Paper, q.Set = c.paper, c.set
		points, err := q.points(shippedExperiment(t, c.experiment), c.nodes*c.cores, true)
		got := fmt.Sprint(points)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s %v: %s, want %s", c.experiment, c.set, got, c.want)
		}
	}
	// 96 cores, which are not a power of two, run 64 ranks of CG and 81 of BT by default.
	q := inJob(8, 12)
	q.Set = map[string][]string{"class": {"C"}}
	for name, want := range map[string]string{"npb/cg": "64", "npb/bt": "81", "npb/ep": "96"} {
		values, err := q.values(shippedExperiment(t, name), point{"nodes": "8", "class": "C"}, &q.Variants[0])
		if err != nil || values["ranks"] != want {
			t.Errorf("%s: %s ranks, %v, want %s", name, values["ranks"], err, want)
		}
	}
	// HPL: the grid and the threads follow from the cores, and N from the memory.
	e := shippedExperiment(t, "hpl/linpack")
	for _, c := range [][4]string{{"all-grid", "1", "96", "8x12"}, {"all-grid", "12", "8", "2x4"}, {"2x4", "rest", "8", "2x4"}} {
		values, err := q.values(e, point{"n": "100", "grid": c[0], "threads": c[1]}, &q.Variants[0])
		if err != nil || values["ranks"] != c[2] || values["grid"] != c[3] {
			t.Errorf("%v: %v, %v", c, values, err)
		}
		if c[1] == "rest" && values["threads"] != "12" {
			t.Errorf("%v: %s threads", c, values["threads"])
		}
	}
	// NB follows from N and the grid; paper 004 has its own.
	for _, c := range []struct{ paper, n, grid, want string }{
		{"", "100000", "8x12", "192"}, {"", "5000", "8x12", "96"}, {"", "1000", "1x2", "96"}, {"", "1000", "3x4", "32"}, {"", "10", "1x1", "32"}, {"004", "1000", "3x4", "192"},
	} {
		q.Paper = c.paper
		values, err := q.values(e, point{"n": c.n, "grid": c.grid, "threads": "1"}, &q.Variants[0])
		if err != nil || values["nb"] != c.want {
			t.Errorf("%+v: NB %s, %v", c, values["nb"], err)
		}
	}
	// A difference from a paper's number of ranks is reported before anything runs, and in the report.
	q.Paper = "004"
	lu := shippedExperiment(t, "npb/lu")
	if got := q.note(lu, "004"); !strings.Contains(got, "64 ranks instead of the 91") || !strings.Contains(q.differs(lu)["004"], got) {
		t.Errorf("LU: %q, %v", got, q.differs(lu))
	}
	q.Suites = []*suite.Suite{{Name: "npb", Experiments: []suite.Experiment{*lu}}}
	if got := fmt.Sprint(q.Notes(8)); !strings.Contains(got, "npb/lu: unlike paper 004: 64 ranks instead of the 91") || len(q.Notes(1)) != 0 {
		t.Errorf("%s", got)
	}
	if q.Paper = ""; q.note(lu, "004") != "" {
		t.Error("a note on a paper that nobody asked for")
	}
	n, err := suite.Order(160<<30, suite.AllBlock)
	if err != nil || n != "131000" && n != "130944" {
		t.Errorf("N in 160 GiB is %s, %v", n, err)
	}
}

// TestRanksOfOneHost: on one host BT and SP run the squares up to its cores, and the others double.
func TestRanksOfOneHost(t *testing.T) {
	for _, c := range []struct {
		name, want string
		cores      int
	}{
		{"npb/bt", "[class=C ranks=1]", 2}, {"npb/sp", "[class=C ranks=1 class=C ranks=4 class=C ranks=9 class=C ranks=16]", 20},
		{"npb/cg", "[class=C ranks=1 class=C ranks=2 class=C ranks=4]", 6}, {"npb/lu", "[class=C ranks=1 class=C ranks=2 class=C ranks=4 class=C ranks=6]", 6},
	} {
		q := request(t, "", "a")
		q.Set = map[string][]string{"class": {"C"}}
		if got, err := q.points(shippedExperiment(t, c.name), c.cores, true); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s on %d cores: %v, %v, want %s", c.name, c.cores, got, err, c.want)
		}
	}
}

// TestClassFits: a class that does not fit into the memory is replaced by one that does, with a notice; a requested
// one is an error.
func TestClassFits(t *testing.T) {
	e := shippedExperiment(t, "npb/ft")
	q := inJob(8, 4) // 32 GiB in VMs
	said, err := q.fitting(e)
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "class C is run instead") {
		t.Fatal(said, err)
	}
	if got := fmt.Sprint(q.choose(e, e.Sweep[0])); got != "[C]" {
		t.Errorf("it runs %s", got)
	}
	q = inJob(8, 4)
	q.Set = map[string][]string{"class": {"D"}}
	if _, err := q.fitting(e); err == nil || !strings.Contains(err.Error(), "class D takes at least 80 GiB, and a variant has 32 GiB") {
		t.Errorf("asked for: %v", err)
	}
}

// TestStepLayout compares srun's options for ranks that the nodes divide and for those that they do not.
func TestStepLayout(t *testing.T) {
	s := &Step{Nodes: 8}
	for _, c := range []struct {
		ranks  int
		turns  bool
		want   string
		absent string
	}{
		{64, false, "--ntasks=64 --ntasks-per-node=8", "cyclic"},
		{64, true, "--ntasks=64 --ntasks-per-node=8 --distribution=cyclic", "none"},
		{81, false, "--ntasks=81 --distribution=cyclic", "per-node"},
	} {
		got := strings.Join(s.words(&mpi.Flavour{}, c.ranks, 1, c.turns), " ")
		if !strings.Contains(got, c.want) || strings.Contains(got, c.absent) {
			t.Errorf("%d ranks: %s", c.ranks, got)
		}
	}
}
