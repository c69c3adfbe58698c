// Package importer reads results measured by other programs: the output of the OSU micro-benchmarks and the raw
// result files of SPEC MPI and OMP.
package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/lazyregexp"
)

// Result is the content of a file: cases, and their values in the order of repetitions, 0, 1, …
type Result struct {
	Cases   []record.Case
	Samples []record.Sample // without a variant
	Notes   []string        // uncertain parts, one line each
}

// MaxFile is the size up to which a file is read, in bytes.
const MaxFile = 64 << 20

// maxValues bounds the values of a file.
const maxValues = 100_000

// Read parses a file's text; name is used in errors, and determines which of the OSU programs with the same title
// printed it. The format is detected from the text.
func Read(name string, text []byte) (*Result, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB, which no result is", name, MaxFile>>20)
	}
	var r *Result
	var err error
	switch {
	case specLine().Match(text):
		r, err = spec(text)
	case bytes.Contains(text, []byte("# OSU ")) || bytes.Contains(text, []byte("# OMB")):
		r, err = osu(filepath.Base(name), text)
	default:
		return nil, fmt.Errorf("%s is neither an output of the OSU micro-benchmarks (a line \"# OSU MPI … Test\") nor a raw result file of SPEC MPI or OMP (.rsf)", name)
	}
	if err == nil && len(r.Samples) > maxValues {
		err = fmt.Errorf("there are more than %d values", maxValues)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// note adds a line to the notes, once.
func (r *Result) note(line string) {
	if !slices.Contains(r.Notes, line) {
		r.Notes = append(r.Notes, line)
	}
}

func (r *Result) add(c record.Case) {
	for _, have := range r.Cases {
		if have.Name == c.Name {
			return
		}
	}
	r.Cases = append(r.Cases, c)
}

// SetSize sets the number of ranks or threads of all values, regardless of the file.
func (r *Result) SetSize(parameter string, n int) {
	for i := range r.Cases {
		r.Cases[i].Kind, r.Cases[i].X = "scaling", parameter
	}
	for i := range r.Samples {
		r.Samples[i].Point = map[string]string{parameter: strconv.Itoa(n)}
	}
}

// specLine is a line of SPEC's raw result format:
// spec.mpi2007.results.104_milc.base.000.reported_time: 123.4
var specLine = lazyregexp.New(`(?m)^spec\.([a-z0-9]{1,20})\.results\.(\d{1,4}_\w{1,40})\.(base|peak)\.(\d{1,4})\.(reported_time|valid):[ \t]*(\S{0,40})[ \t]*\r?$`)

// specRun is one benchmark's run in a raw file.
type specRun struct {
	suite, name, tune string
	rep               int
}

// specSize matches a line with the ranks or threads of one run, or of the whole file.
var specSize = lazyregexp.New(`(?m)^spec\.[a-z0-9]{1,20}\.(?:results\.(\d{1,4}_\w{1,40})\.(base|peak)\.(\d{1,4})\.)?(?:base_)?(ranks|threads|nthreads):[ \t]*(\d{1,7})[ \t]*\r?$`)

// sizes returns the parameter that a raw file states, ranks or threads, and its value by run; the key "" is the
// file's.
func sizes(text []byte) (parameter string, of map[string]string) {
	of = map[string]string{}
	for _, m := range specSize().FindAllSubmatch(text, maxValues) {
		parameter = strings.TrimPrefix(string(m[4]), "n")
		key := ""
		if len(m[1]) > 0 {
			key = string(m[1]) + "." + string(m[2]) + "." + string(m[3])
		}
		of[key] = string(m[5])
	}
	return parameter, of
}

func spec(text []byte) (*Result, error) {
	parameter, of := sizes(text)
	times, valid := map[specRun]float64{}, map[specRun]string{}
	for _, m := range specLine().FindAllSubmatch(text, maxValues) {
		rep, err := strconv.Atoi(string(m[4]))
		if err != nil {
			return nil, err
		}
		k := specRun{string(m[1]), string(m[2]), string(m[3]), rep}
		if string(m[5]) == "valid" {
			valid[k] = string(m[6])
			continue
		}
		if t, err := strconv.ParseFloat(string(m[6]), 64); err == nil && t > 0 && t-t == 0 {
			times[k] = t
		}
	}
	if len(valid)+len(times) == 0 {
		return nil, fmt.Errorf("has no time and no verdict of a run")
	}
	var all []specRun
	for k := range valid {
		all = append(all, k)
	}
	for k := range times {
		if _, ok := valid[k]; !ok {
			all = append(all, k)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.name != b.name {
			return a.name < b.name
		}
		if a.tune != b.tune {
			return a.tune < b.tune
		}
		return a.rep < b.rep
	})
	r := &Result{}
	for _, k := range all {
		name := k.suite + "/" + k.name
		if k.tune != "base" {
			name += "." + k.tune
		}
		seed := "001 fig 1, 2, 3"
		if strings.HasPrefix(k.suite, "omp") {
			seed = "001 fig 3, 4"
		}
		c := record.Case{Name: name, Title: strings.ToUpper(k.suite) + " " + k.name, Suite: k.suite, Program: "SPEC " + strings.ToUpper(k.suite), Metric: "time", Unit: "s", Better: "down", Kind: "bar", Seed: seed}
		s := record.Sample{Case: name, Rep: k.rep, Value: times[k], OK: true}
		size := of[fmt.Sprintf("%s.%s.%03d", k.name, k.tune, k.rep)]
		if size == "" {
			size = of[""]
		}
		if size != "" {
			s.Point = map[string]string{parameter: size}
			c.Kind, c.X = "scaling", parameter
		}
		r.add(c)
		// SPEC marks a run that verified with S, for success.
		if v, ok := valid[k]; !ok {
			s.OK, s.Error = false, "the file does not say whether the run is valid"
		} else if v != "S" {
			s.OK, s.Error = false, "SPEC says that the run is not valid: "+v
		} else if times[k] == 0 {
			s.OK, s.Error = false, "the file has no time of it"
		}
		r.Samples = append(r.Samples, s)
	}
	return r, nil
}
