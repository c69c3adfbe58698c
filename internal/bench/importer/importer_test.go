package importer

import (
	"strings"
	"testing"
)

const latency = `# OSU MPI Latency Test v5.9
# Size          Latency (us)
0                       0.98
1                       1.02
`

const rsf = `spec.mpi2007.hw_vendor: somebody
spec.mpi2007.results.104_milc.base.000.reported_time: 171.5
spec.mpi2007.results.104_milc.base.000.valid: S
spec.mpi2007.results.104_milc.base.001.reported_time: 170.25
spec.mpi2007.results.104_milc.base.001.valid: S
spec.mpi2007.results.137_lu.base.000.valid: VE
`

func TestOSU(t *testing.T) {
	r, err := Read("x", []byte(latency+strings.ReplaceAll(latency, "0.98", "1.98")+"# OSU MPI Multiple Bandwidth / Message Rate Test v5.9\n# [ pairs: 4 ] [ window size: 64 ]\n# Size MB/s Messages/s\n8 55.1 6887500.0\n"))
	if err != nil || len(r.Cases) != 3 || len(r.Samples) != 6 {
		t.Fatalf("%+v %v", r, err)
	}
	if s := r.Samples[2]; s.Case != "osu/latency" || s.Rep != 1 || s.Value != 1.98 || s.Point["size"] != "0" {
		t.Errorf("%+v", s)
	}
	if c := r.Cases[1]; c.Name != "osu/mbw_mr" || c.Better != "up" || c.Unit != "MB/s" {
		t.Errorf("%+v", c)
	}
}

func TestSPEC(t *testing.T) {
	r, err := Read("x.rsf", []byte(rsf))
	if err != nil || len(r.Cases) != 2 || len(r.Samples) != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	if s := r.Samples[1]; s.Case != "mpi2007/104_milc" || s.Rep != 1 || s.Value != 170.25 || !s.OK {
		t.Errorf("%+v", s)
	}
	if s := r.Samples[2]; s.OK || !strings.Contains(s.Error, "VE") {
		t.Errorf("an invalid run is a result: %+v", s)
	}
}

// TestSPECWithoutVerdict: a run without a verdict is not a result.
func TestSPECWithoutVerdict(t *testing.T) {
	r, err := Read("x.rsf", []byte("spec.mpi2007.results.104_milc.base.000.reported_time: 171.5\n"))
	if err != nil || len(r.Samples) != 1 || r.Samples[0].OK {
		t.Errorf("%+v %v", r, err)
	}
}

// TestSPECSize: ranks and threads in a raw file are the points; those of one run override the file's.
func TestSPECSize(t *testing.T) {
	for text, want := range map[string]string{
		rsf:                              "bar ",
		rsf + "spec.mpi2007.ranks: 32\n": "scaling 32",
		rsf + "spec.mpi2007.base_ranks: 32\nspec.mpi2007.results.104_milc.base.000.ranks: 16\n":               "scaling 16",
		strings.ReplaceAll(rsf, "mpi2007", "omp2001") + "spec.omp2001.nthreads: 64\n":                         "scaling 64",
		strings.ReplaceAll(rsf, "mpi2007", "omp2001") + "spec.omp2001.results.104_milc.base.000.threads: 8\n": "scaling 8",
	} {
		r, err := Read("x.rsf", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got := r.Cases[0].Kind + " " + r.Samples[0].Point[r.Cases[0].X]
		if got != want {
			t.Errorf("%s\nis %q, want %q", text, got, want)
		}
	}
	r, err := Read("x.rsf", []byte(rsf))
	if err != nil {
		t.Fatal(err)
	}
	if r.SetSize("ranks", 8); r.Samples[0].Point["ranks"] != "8" || r.Cases[0].X != "ranks" {
		t.Errorf("%+v", r.Samples[0])
	}
}

func TestBad(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "is neither an output of the OSU",
		"# OSU MPI Latency Test v5.9":  "it has no lines of results",
		"# OSU MPI Frobnication Test ": "is none of the OSU micro-benchmarks",
	} {
		if _, err := Read("x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(latency))
	f.Add([]byte(rsf))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read("x", text)
		if err == nil && len(r.Samples) == 0 {
			t.Error("no samples and no error")
		}
	})
}
