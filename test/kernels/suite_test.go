package kernels

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// measurement is what the programs of OSU's methods print with --json.
type measurement struct {
	Program string
	Ranks   []struct{ Host string }
	Results []struct {
		Bytes                            uint64
		Iterations                       int
		Mean, Min, Median, P99, Messages float64
	}
}

// Pairs, one-sided and collective operations: every size has its row, and the program itself
// has found each result right.
func TestOSUMethods(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		for _, c := range []struct {
			ranks int
			args  []string
			rows  int
		}{
			{2, []string{"nm_bibw"}, 3},
			{2, []string{"nm_mbw_mr"}, 3}, {4, []string{"nm_mbw_mr"}, 3}, {4, []string{"nm_multi_lat"}, 3},
			{2, []string{"nm_rma", "put-latency"}, 3}, {2, []string{"nm_rma", "get-latency"}, 3},
			{2, []string{"nm_rma", "put-bw"}, 3}, {2, []string{"nm_rma", "get-bw"}, 3},
			{3, []string{"nm_coll", "barrier"}, 1}, {3, []string{"nm_coll", "bcast"}, 3},
			{3, []string{"nm_coll", "reduce"}, 3}, {3, []string{"nm_coll", "allreduce"}, 3},
			{3, []string{"nm_coll", "gather"}, 3}, {3, []string{"nm_coll", "scatter"}, 3},
			{3, []string{"nm_coll", "allgather"}, 3}, {3, []string{"nm_coll", "alltoall"}, 3},
		} {
			args := append(append([]string{}, c.args...), "--iterations", "5:5", "--warmup", "1:1", "--json")
			if c.rows > 1 {
				args = append(args, "--sizes", "4KiB:16KiB")
			}
			var m measurement
			r := l.mpirun(t, c.ranks, args[0], args[1:]...).want(t, 0)
			if err := json.Unmarshal([]byte(r.out), &m); err != nil {
				t.Fatalf("%v: %v\n%s", c.args, err, r.out)
			}
			if m.Program != c.args[0] || len(m.Ranks) != c.ranks || len(m.Results) != c.rows {
				t.Errorf("%v: %+v", c.args, m)
			}
			for _, row := range m.Results {
				if row.Mean <= 0 || row.Iterations != 5 || (row.Messages > 0) != (c.args[0] == "nm_mbw_mr") {
					t.Errorf("%v: %+v", c.args, row)
				}
			}
		}
	})
}

func TestOSUMethodsUsage(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		l.mpirun(t, 3, "nm_mbw_mr").want(t, 2, "pairs of ranks, and there are 3")
		l.mpirun(t, 1, "nm_coll", "bcast").want(t, 2, "several ranks, and there is 1")
		for program, bad := range map[string][][]string{
			"nm_bibw": {{"--window", "0"}}, "nm_mbw_mr": {{"1"}}, "nm_multi_lat": {{"--window", "3"}},
			"nm_rma": {{}, {"put"}, {"put-bw", "--sizes", "1GiB"}}, "nm_coll": {{"alltoallv"}, {"bcast", "x"}},
		} {
			usage(t, filepath.Join(l.dir, program), bad)
		}
	})
}

func TestStream(t *testing.T) {
	program := filepath.Join(regionPrograms, "nm_stream")
	var doc struct {
		Threads int
		Results []struct {
			Loop                string
			Best, Median, Least float64
		}
	}
	r := run(t, program, "--bytes", "1MiB", "--rounds", "4", "--json").want(t, 0)
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || len(doc.Results) != 4 || doc.Threads < 1 {
		t.Fatalf("%v\n%s", err, r.out)
	}
	for _, row := range doc.Results {
		if row.Best < row.Median || row.Median < row.Least || row.Least <= 0 {
			t.Errorf("%+v", row)
		}
	}
	usage(t, program, [][]string{{"--rounds", "1"}, {"--bytes", "x"}, {"y"}})
}
