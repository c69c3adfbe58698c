package importer

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/suite"
)

// TestTitles: a title of the table belongs to one form, except one that two tests of OpenSHMEM share, and is
// recognised in a line with every accelerator and version. The table contains everything that the suite osu runs.
func TestTitles(t *testing.T) {
	programs := map[string]bool{}
	for title, tests := range osuTests() {
		if len(tests) != 1 && title != "OSU OpenSHMEM Put_nbi Test" {
			t.Errorf("%q is there %d times", title, len(tests))
		}
		if title != strings.TrimSpace(title) || !strings.HasPrefix(title, "OSU ") && !strings.HasPrefix(title, "OMB") {
			t.Errorf("%q is not a title", title)
		}
		for _, test := range tests {
			if len(test.programs) == 0 {
				t.Errorf("%q has no program", title)
			}
			for _, p := range test.programs {
				programs[p] = true
			}
		}
	}
	if len(programs) < 100 {
		t.Errorf("%d programs: some of them are lost", len(programs))
	}
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	picked, err := suite.Select(list, []string{"osu"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range picked[0].Experiments {
		if !programs[e.Name] {
			t.Errorf("osu/%s has no title", e.Name)
		}
	}
}

// decoration states how a test was run, and by which program.
type decoration struct {
	version, accelerator, buffers  string
	validation, full, tail, noRate bool
	fails                          int // row whose validation fails, from 1; 0: none
	prefix                         func(rng *rand.Rand, line string) string
	settings                       []string
	messages                       bool
	crlf                           bool
	unit                           string // replaces the columns' unit
	rows                           int
	suffix                         string // of the case's name
	titleChange                    func(string) string
}

// output returns a test's output, in the fields of the OSU sources: the first of 10 characters, the others of 20.
func (d *decoration) output(rng *rand.Rand, test osuTest) (text string, values [][]float64) {
	title := test.title
	if d.accelerator != "" {
		for _, word := range []string{"MPI", "NCCL", "RCCL"} {
			if rest, ok := strings.CutPrefix(title, "OSU "+word); ok {
				call, after, _ := strings.Cut(rest, " ")
				title = "OSU " + word + call + "-" + d.accelerator + " " + after
			}
		}
	}
	if d.titleChange != nil {
		title = d.titleChange(title)
	}
	lines := []string{"", "# " + title + d.version}
	lines = append(lines, d.settings...)
	if d.buffers != "" {
		lines = append(lines, d.buffers)
	}
	var columns []string
	size := "# Size"
	if strings.HasPrefix(title, "OMB") {
		size = "# Size (B)"
	}
	full := []string{"Min Latency(us)", "Max Latency(us)", "Iterations"}
	switch test.form {
	case formLatency, formBar:
		columns = []string{"Avg Latency(us)"}
		if rng.Intn(2) == 0 {
			columns[0] = "Latency (us)"
		}
	case formBandwidth:
		columns = []string{"Bandwidth (MB/s)"}
	case formRates:
		columns = []string{"MB/s", "Messages/s"}
		if d.noRate {
			columns = columns[:1]
		}
	case formRate:
		columns = []string{"Messages/s"}
	case formOverlap, formOverlapBar:
		columns = []string{"Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"}
		full = nil
		if d.full {
			columns = []string{"Overall(us)", "Compute(us)", "Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)", "Pure Comm.(us)", "Min Comm.(us)", "Max Comm.(us)", "Overlap(%)"}
		}
		if test.programs[0] == "oshm_put_overlap" {
			columns = []string{"Compute(us)", "Coll. Init(us)", "MPI_Wait(us)", "Pure Comm.(us)", "Overlap(%)"}
		}
	}
	if d.full {
		columns = append(columns, full...)
	}
	if d.validation {
		columns = append(columns, "Validation")
	}
	if d.tail {
		columns = append(columns, "P9 Tail Lat(us)", "P99 Tail BW(MB/s)")
	}
	bar := test.form == formBar || test.form == formOverlapBar
	head := fmt.Sprintf("%-10s", size)
	if bar {
		head = "#"
	}
	for i, c := range columns {
		if d.unit != "" && i == 0 {
			c = strings.NewReplacer("us)", d.unit+")", "MB/s", d.unit, "Messages/s", d.unit).Replace(c)
		}
		head += fmt.Sprintf("%*s", max(20, len(c)+1), c)
	}
	lines = append(lines, head)
	for row := range d.rows {
		line := fmt.Sprintf("%-10d", 1<<row)
		if bar {
			if row > 0 {
				break
			}
			line = ""
		}
		var v []float64
		for _, c := range columns {
			x := float64(rng.Intn(1_000_000)) / 100
			text := fmt.Sprintf("%.2f", x)
			switch {
			case c == "Validation":
				text = []string{"Pass", "passed"}[rng.Intn(2)]
				if d.fails == row+1 {
					text = []string{"Fail", "failed"}[rng.Intn(2)]
				}
			case c == "Iterations":
				text = "1000"
			case slices.Contains([]string{"Avg Latency(us)", "Latency (us)", "Bandwidth (MB/s)", "MB/s", "Messages/s", "Overall(us)", "Pure Comm.(us)", "Overlap(%)"}, c):
				v = append(v, x)
			}
			line += fmt.Sprintf("%20s", text)
		}
		values = append(values, v)
		lines = append(lines, line)
		if d.messages && row == 0 {
			lines = append(lines, "[node1:4242] 3 more processes have sent help message help-mpi-btl.txt", "coll_ucc_barrier.c:31 - running")
		}
	}
	end := "\n"
	if d.crlf {
		end = "\r\n"
	}
	for _, line := range lines {
		if d.prefix != nil {
			line = d.prefix(rng, line)
		}
		text += line + end
	}
	return text, values
}

// TestOSUProperty: every title, with every version, accelerator and option of the tests, after any launcher's prefix,
// is parsed with its own values and under its own name, or rejected with a line that names it. A failed validation is
// never a value.
func TestOSUProperty(t *testing.T) {
	prefixes := []func(*rand.Rand, string) string{nil,
		func(_ *rand.Rand, s string) string { return "[1,0]<stdout>:" + s },
		func(_ *rand.Rand, s string) string { return "[prterun-node1-2912345@1,0]<stdout>: " + s },
		func(_ *rand.Rand, s string) string { return "0: " + s },
		func(_ *rand.Rand, s string) string { return " 0: " + s },
		func(_ *rand.Rand, s string) string { return "[0] " + s },
		func(r *rand.Rand, s string) string {
			return fmt.Sprintf("Fri Nov %2d %02d:04:32 2026<stdout>:", 1+r.Intn(30), r.Intn(24)) + s
		},
		func(r *rand.Rand, s string) string {
			return fmt.Sprintf("Fri Nov %2d %02d:04:32 2026[1,0]<stdout>:", 1+r.Intn(30), r.Intn(24)) + s
		},
	}
	versions := []string{"", " v5.0", " v5.3.2", " v5.9", " v6.2", " v7.0-lrbison2", " v7.0.1", " v7.4", " v7.5", " v7.5.1"}
	settings := []struct{ line, suffix string }{{"", ""}, {"# Datatype: MPI_CHAR.", ""}, {"# Datatype: MPI_INT.", "-mpi-int"}, {"# MPI_Datatype: MPI_DOUBLE", "-mpi-double"},
		{"# Synchronization: MPI_Win_flush", ""}, {"# Synchronization: MPI_Win_lock/unlock", "-mpi-win-lock-unlock"}, {"# Window creation: MPI_Win_create", "-mpi-win-create"},
		{"# [ pairs: 4 ] [ window size: 64 ]", ""}, {"# [ pairs: 4 ] [ window size: 16 ]", "-window-of-16"}, {"# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait", ""}}
	rng := rand.New(rand.NewSource(1))
	n := 0
	var titles []string
	for title := range osuTests() {
		titles = append(titles, title)
	}
	slices.Sort(titles)
	for _, title := range titles {
		for _, test := range osuTests()[title] {
			for range 24 {
				d := decoration{version: versions[rng.Intn(len(versions))], prefix: prefixes[rng.Intn(len(prefixes))], rows: 1 + rng.Intn(8),
					full: rng.Intn(3) == 0, validation: rng.Intn(2) == 0, tail: rng.Intn(4) == 0, noRate: rng.Intn(4) == 0, messages: rng.Intn(4) == 0, crlf: rng.Intn(4) == 0}
				if d.validation && rng.Intn(2) == 0 {
					d.fails = 1 + rng.Intn(d.rows)
				}
				if strings.HasPrefix(test.title, "OSU MPI") || strings.HasPrefix(test.title, "OSU NCCL") || strings.HasPrefix(test.title, "OSU RCCL") {
					if d.accelerator = []string{"", "", "CUDA", "OPENACC", "ROCM", "SYCL", "MANAGED", "CUDA MANAGED"}[rng.Intn(8)]; d.accelerator != "" {
						d.suffix = "-" + slug(d.accelerator)
						if rng.Intn(2) == 0 {
							d.buffers = "# Send Buffer on DEVICE (D) and Receive Buffer on MANAGED (MH)"
							d.suffix += "-buffers-d-mh"
						}
					}
				}
				if s := settings[rng.Intn(len(settings))]; s.line != "" {
					d.settings = []string{s.line}
					d.suffix += s.suffix
				}
				bad := rng.Intn(8)
				switch bad {
				case 0:
					d.unit = []string{"ms", "s", "GB/s", "ns", "Mbit/s"}[rng.Intn(5)]
				case 1:
					d.titleChange = func(s string) string { return strings.Replace(s, "Test", "Trial", 1) }
				case 2:
					d.titleChange = func(s string) string { return "OSU MPI My" + strings.TrimPrefix(s, "OSU MPI") }
				case 3:
					d.titleChange = func(s string) string { return s + " of mine" }
				}
				text, values := d.output(rng, test)
				r, err := Read("x", []byte(text))
				n++
				if bad < 4 || test.form == formNone {
					if err == nil {
						t.Fatalf("is read: %+v\n%s", r, text)
					}
					if quoted := strings.SplitN(err.Error(), `"`, 3); len(quoted) < 3 || !strings.Contains(text, "# "+quoted[1]) {
						t.Fatalf("the title is not named: %v\n%s", err, text)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				at := 0
				for row, list := range values {
					for k, v := range list {
						s := r.Samples[at]
						at++
						name, _, _ := strings.Cut(s.Case, ".")
						if name != "osu/"+test.programs[0]+d.suffix || (k == 0) != (s.Case == name) {
							t.Fatalf("%s is of %s%s\n%s", s.Case, test.programs[0], d.suffix, text)
						}
						if failed := d.fails == row+1; s.OK == failed || !failed && s.Value != v || failed && (s.Value != 0 || s.Error == "") {
							t.Fatalf("row %d: %+v, want %v\n%s", row, s, v, text)
						}
						if size := s.Point["size"]; test.form != formBar && test.form != formOverlapBar && size != fmt.Sprint(1<<row) {
							t.Fatalf("row %d: size %s\n%s", row, size, text)
						}
					}
				}
				if at != len(r.Samples) {
					t.Fatalf("%d values of %d\n%s", len(r.Samples), at, text)
				}
				if len(test.programs) > 1 && len(r.Notes) != 1 {
					t.Fatalf("no note on a shared title: %q", r.Notes)
				}
			}
		}
	}
	t.Logf("%d outputs", n)
}

// TestOSUReal: outputs of the OSU programs themselves are parsed under the names of their files.
func TestOSUReal(t *testing.T) {
	files, err := filepath.Glob("../extract/testdata/osu-*.user.log")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := "osu/" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "osu-"), ".user.log")
		if r, err := Read(file, text); err != nil || r.Cases[0].Name != name || len(r.Samples) == 0 || !r.Samples[0].OK {
			t.Errorf("%s: %+v %v", file, r, err)
		}
	}
}

// TestOSUBroken: text that would give a table values of another one is rejected, with its title; a message that a
// program failed invalidates its values.
func TestOSUBroken(t *testing.T) {
	const head = "# OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)\n8                       1.10\n"
	for text, want := range map[string]string{
		head + "16         1.2      3.4\n": "has 3 fields",
		head + "16         1,2\n":          `has "1,2"`,
		head + "16[node1] warning\n":       "begins with no size",
		head + "8          1.2\n":          "is there twice",
		head + "16.5       1.2\n":          "begins with no size",
		head + "16         0x1p4\n":        `has "0x1p4"`,
		"[1,0]<stdout>:" + strings.ReplaceAll(strings.TrimSpace(head), "\n", "\n[1,0]<stdout>:") + "\n[1,1]<stdout>:16 1.2\n": "another rank",
		head + "#-----\n# Benchmarking PingPong\n16 1000 1.2 3.4\n":                                                           "without the head",
		"# OSU MPI Latency Test v7.4\n16 1.2\n":                                                                               "without the head",
		"# OSU MPI Latency Test v7.4\n# Set Derived DataTypes block_length to 2\n":                                            "is not known",
		"# OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)   Transmit Size\n8  1.1  16\n":                             "is not known",
		"# OSU MPI Latency Test v7.4\n# Size       Bandwidth (MB/s)\n8  1.1\n":                                                "not the columns",
		"# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 1 ] [ window size: varied ]\n":                     "is not known",
		"# OSU MPI_Put Latency Test v7.4\n" + head:                                                                            "no lines of results",
		head + "# OSU MPI All-to-Allx Latency Test v7.4\n":                                                                    "All-to-Allx",
		head + "  # OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)\n128 1.2\n":                                       "behind other text",
		head + "# OSU Latency Test\n":                                                                                         "OSU Latency Test",
	} {
		if r, err := Read("x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"OSU `) {
			t.Errorf("%q: %v %+v", text, err, r)
		}
	}
	for text, failed := range map[string]int{
		head + "16 1.2\n":                       0,
		"# Number of nodes: 2\n1 2\n" + head:    0,
		head + "# done\n# Number of nodes: 2\n": 0,
		head + "16 -nan\n":                      1,
		head + "16 -3.00\n":                     1,
		head + "16 1.2\nDATA VALIDATION ERROR: osu_latency exited with status 1 on message size 16.\n": 1,
		head + "16 1.2\nmpirun noticed that process rank 1 with PID 7 on node n exited on signal 11\n": 2,
		head + "16 1.2\nsrun: error: n2: task 1: Exited with exit code 1\n":                            2,
		head + "16 1.2\nFAILED: MPI_SUM on MPI_INT had 1 of 9 tests fail data validation.\n":           2,
	} {
		r, err := Read("x", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		n := 0
		for _, s := range r.Samples {
			if !s.OK {
				n++
			}
		}
		if n != failed {
			t.Errorf("%q: %d values failed, want %d", text, n, failed)
		}
	}
	// A further datatype is a separate table; threads are stated before the title.
	r, err := Read("x", []byte("# Number of Sender threads: 1 \n# Number of Receiver threads: 2\n\n# OSU MPI Multi-threaded Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n8   1.1\n# Datatype: MPI_INT.\n# Size       Avg Latency(us)\n8   1.2\n"))
	if err != nil || len(r.Cases) != 2 || r.Cases[0].Name != "osu/latency_mt-1-sender-threads-2-receiver-threads" || r.Cases[1].Name != "osu/latency_mt-mpi-int-1-sender-threads-2-receiver-threads" {
		t.Errorf("%+v %v", r, err)
	}
}

// TestSharedTitle: programs that print the same title have cases of their own if the file is named after one of them.
// Otherwise the first has the values, and a note names all.
func TestSharedTitle(t *testing.T) {
	const table = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1      2.5\n2      5.0\n"
	for file, want := range map[string]string{
		"results/osu_bw_fan_in.txt": "osu/bw_fan_in", "osu_bw_fan_out-3.log": "osu/bw_fan_out", "osu_bw.txt": "osu/bw",
		"results of osu_bw_fan_in/out.txt": "osu/bw", "osu_bw_fan_inner.txt": "osu/bw", "osu_bwx.txt": "osu/bw", "mine.txt": "osu/bw",
	} {
		r, err := Read(file, []byte(table))
		if err != nil {
			t.Fatal(file, err)
		}
		if r.Cases[0].Name != want || r.Samples[0].Case != want {
			t.Errorf("%s: %s, want %s", file, r.Cases[0].Name, want)
		}
		named := strings.HasPrefix(file, "results/") || strings.HasPrefix(file, "osu_bw.") || strings.HasPrefix(file, "osu_bw_fan_out") || strings.HasPrefix(file, "osu_bw_fan_inner")
		if named != (len(r.Notes) == 0) {
			t.Errorf("%s: notes %q", file, r.Notes)
		}
		if program := "OSU osu_" + strings.TrimPrefix(want, "osu/"); named != (r.Cases[0].Program == program) {
			t.Errorf("%s: the program is %s", file, r.Cases[0].Program)
		}
	}
}
