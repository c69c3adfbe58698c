package kernels

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// resultLines are what nm_cg printed without the lines that tell where and how fast.
func resultLines(out string) string {
	var b strings.Builder
	for _, line := range strings.SplitAfter(out, "\n") {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// The solver's result is the same to the last bit with each library and number of ranks.
func TestCGIsTheSameEverywhere(t *testing.T) {
	want, err := os.ReadFile("testdata/nm_cg.golden")
	if err != nil {
		t.Fatal(err)
	}
	eachLibrary(t, func(t *testing.T, l *library) {
		for _, ranks := range []int{1, 2, 3} {
			r := l.mpirun(t, ranks, "nm_cg", "--grid", "64", "--expect", "93dddb21bf702903").want(t, 0)
			if got := resultLines(r.out); got != string(want) {
				t.Errorf("%d ranks:\n%swant\n%s", ranks, got, want)
			}
		}
	})
}

func TestCGJSON(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		var doc struct {
			Program, Hosts, Checksum, ResidualHex string
			Grid, Ranks, Iterations               int
			Converged                             bool
			Residual, Error, Seconds              float64
		}
		r := l.mpirun(t, 2, "nm_cg", "--grid", "64", "--json").want(t, 0)
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
			t.Fatalf("%v\n%s", err, r.out)
		}
		if doc.Grid != 64 || doc.Ranks != 2 || doc.Iterations != 121 || !doc.Converged ||
			doc.Checksum != "93dddb21bf702903" || doc.ResidualHex != "0x1.8b96d383e7278p-34" || doc.Hosts == "" {
			t.Errorf("%+v", doc)
		}
	})
}

func TestCGWrongResult(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		l.mpirun(t, 2, "nm_cg", "--grid", "64", "--max-iterations", "3").want(t, 1, "did not converge")
		l.mpirun(t, 2, "nm_cg", "--grid", "64", "--expect", "0123456789abcdef").want(t, 1, "checksum")
		l.mpirun(t, 3, "nm_cg", "--grid", "2").want(t, 2, "3 ranks for 2 rows")
	})
}

func TestPointToPoint(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		for program, sizes := range map[string][]uint64{
			"nm_latency": {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
			"nm_bw":      {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
		} {
			first := "0"
			if program == "nm_bw" {
				first = "1"
			}
			// Without a time limit: on a busy machine it would make fewer iterations of a size.
			args := []string{"--sizes", first + ":16KiB", "--iterations", "20:10", "--warmup", "5:2", "--time-limit", "0"}
			var doc struct {
				Program, Unit, MPI string
				Ranks              []struct {
					Rank     int
					Host     string
					Emulated bool
				}
				Results []struct {
					Bytes                  uint64
					Iterations             int
					Mean, Min, Median, P99 float64
				}
			}
			r := l.mpirun(t, 2, program, append(args, "--json")...).want(t, 0)
			if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
				t.Fatalf("%s: %v\n%s", program, err, r.out)
			}
			if doc.Program != program || !strings.Contains(doc.MPI, l.name) || len(doc.Ranks) != 2 || doc.Ranks[1].Host == "" {
				t.Errorf("%+v", doc)
			}
			if len(doc.Results) != len(sizes) {
				t.Fatalf("%s: %d sizes, want %d", program, len(doc.Results), len(sizes))
			}
			for i, row := range doc.Results {
				n := 20
				if row.Bytes > 8192 {
					n = 10
				}
				if row.Bytes != sizes[i] || row.Iterations != n || row.Mean <= 0 || row.Min <= 0 || row.Min > row.Median {
					t.Errorf("%s: %+v", program, row)
				}
				// The 99th percentile is the slow side: of a latency above the median, of a
				// bandwidth below.
				if low := row.P99 <= row.Median; low != (program == "nm_bw") && row.P99 != row.Median {
					t.Errorf("%s: %+v", program, row)
				}
			}
			table := l.mpirun(t, 2, program, args...).want(t, 0, "# "+program, "# MPI: "+l.name, "# rank 0: ", "# rank 1: ")
			if n := len(strings.Fields(resultLines(table.out))); n != 6*len(sizes) {
				t.Errorf("%s: %d values in the table, want %d\n%s", program, n, 6*len(sizes), table.out)
			}
		}
	})
}

func TestTwoRanksOnly(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		for _, program := range []string{"nm_latency", "nm_bw"} {
			l.mpirun(t, 1, program).want(t, 2, "two ranks, and there is 1")
			l.mpirun(t, 3, program).want(t, 2, "two ranks, and there are 3")
		}
	})
}

// A slow network does not make a run endless.
func TestTimeLimit(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		var doc struct{ Results []struct{ Iterations int } }
		r := l.mpirun(t, 2, "nm_latency", "--sizes", "8", "--iterations", "100000000", "--time-limit", "0.05", "--json").want(t, 0)
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || len(doc.Results) != 1 || doc.Results[0].Iterations >= 100000000 {
			t.Errorf("%v\n%s", err, r.out)
		}
	})
}

// Wrong options are refused, before MPI starts, by one line; --help explains.
func TestUsage(t *testing.T) {
	eachLibrary(t, func(t *testing.T, l *library) {
		for program, bad := range map[string][][]string{
			"nm_latency":  {{"--sizes", "8:4"}, {"--sizes", "2TiB"}, {"--iterations", "0"}, {"--warmup", "x"}, {"--window", "3"}, {"--nonsense"}, {"--sizes"}, {"extra"}, {"--time-limit", "nan"}},
			"nm_bw":       {{"--window", "0"}, {"--window", "99999999"}, {"--json=1"}},
			"nm_onesided": {{"--bytes", "9"}, {"--bytes"}, {"--rounds", "0"}, {"--nonsense"}, {"extra"}},
			"nm_epochs":   {{"--bytes", "12"}, {"--only", "nothing"}, {"--seconds", "0"}, {"--nonsense"}, {"--leave"}, {"extra"}},
			"nm_cg":       {{"--grid", "1"}, {"--grid", "99999"}, {"--tolerance", "0"}, {"--expect", "12"}, {"--max-iterations", "-1"}, {"1"}},
		} {
			usage(t, filepath.Join(l.dir, program), bad)
		}
	})
}

func usage(t *testing.T, program string, bad [][]string) {
	t.Helper()
	run(t, program, "--help").want(t, 0, "Usage:", "Options:", "Exit status:", "Example:")
	for _, args := range bad {
		r := run(t, program, args...).want(t, 2, filepath.Base(program)+": ")
		if strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%s %v: want one line\n%s%s", program, args, r.out, r.err)
		}
	}
}
