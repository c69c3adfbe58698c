package report

import (
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/words"
)

// mostVariants is the maximum number of variants in a report: each has columns and a marker of its own.
const mostVariants = 64

// Data is a run, as read from its directory.
type Data struct {
	Folder string
	Run    record.Run
	// Values are the measured values by case (index in Run.Cases).
	Values []CaseValues
	// Notes are the parts of the directory that could not be used, one line each.
	Notes []string
}

// CaseValues are a case's values by point, the points in the order of their first sample.
type CaseValues struct {
	Points []*PointValues
	byKey  map[string]*PointValues
}

// PointValues are the values at one setting of the swept parameters.
type PointValues struct {
	Point  map[string]string
	Sides  []SideValues // by variant (index in Run.Variants)
	Failed int          // of all variants
}

// SideValues are one variant's results at a point, in the case's unit, by repetition.
type SideValues struct {
	Values []float64
	Errors []string // why repetitions failed, at most a few
	Failed int
	// Repetitions are the same values with what pairs them (package verdict).
	Repetitions []verdict.Value
}

// Read reads a run's directory. It fails if there is no run, or if the run has a newer format. It keeps the complete
// records of a truncated file, and reports the truncation in Notes.
func Read(folder string) (*Data, error) {
	run, samples, notes, err := record.Load(folder)
	if err != nil {
		return nil, err
	}
	return Group(folder, run, samples, notes)
}

// Group groups a run's samples by case, point and variant. notes are those of the reader.
func Group(folder string, run *record.Run, samples []record.Sample, notes []string) (*Data, error) {
	if len(run.Variants) > mostVariants {
		return nil, fmt.Errorf("%s has %d variants; a report compares at most %d", folder, len(run.Variants), mostVariants)
	}
	d := &Data{Folder: folder, Run: *run, Values: make([]CaseValues, len(run.Cases)), Notes: notes}
	if d.Run.ID == "" {
		d.Run.ID = filepath.Base(filepath.Clean(folder))
	}
	cases, variants := map[string]int{}, map[string]int{}
	for i, c := range run.Cases {
		cases[c.Name] = i
	}
	for i, v := range run.Variants {
		variants[v.Label] = i
	}
	unknown := 0
	for i := range samples {
		s := &samples[i]
		c, okCase := cases[s.Case]
		v, okVariant := variants[s.Variant]
		if !okCase || !okVariant {
			unknown++
		} else if s.Rep >= 0 {
			d.add(c, v, s)
		}
	}
	if unknown > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%s left out: run.json does not have the case or the variant", words.Count(unknown, "sample is", "samples are")))
	}
	for _, u := range d.Run.Unreached {
		d.Notes = append(d.Notes, unreached+u)
	}
	if d.Run.Ended.IsZero() {
		d.Notes = append(d.Notes, "the run has not ended, or was cut short: this is what it had measured so far")
	}
	return d, nil
}

// mostErrors is the maximum number of reasons that are kept for the failed repetitions of one point.
const mostErrors = 3

func (d *Data) add(c, v int, s *record.Sample) {
	cv := &d.Values[c]
	key := pointKey(s.Point)
	p := cv.byKey[key]
	if p == nil {
		if cv.byKey == nil {
			cv.byKey = map[string]*PointValues{}
		}
		p = &PointValues{Point: s.Point, Sides: make([]SideValues, len(d.Run.Variants))}
		cv.byKey[key] = p
		cv.Points = append(cv.Points, p)
	}
	side := &p.Sides[v]
	if !s.OK || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
		side.Failed++
		p.Failed++
		if why := s.Error; len(side.Errors) < mostErrors {
			if why == "" {
				why = "failed without a reason"
			}
			side.Errors = append(side.Errors, why)
		}
		return
	}
	side.Values = append(side.Values, s.Value)
	side.Repetitions = append(side.Repetitions, verdict.Value{Rep: s.Rep, Value: s.Value, PingPong: s.PingPong, Moved: s.Moved})
}

// pointKey returns a string that is the same for equal points.
func pointKey(p map[string]string) string {
	switch len(p) {
	case 0:
		return ""
	case 1:
		for k, v := range p {
			return k + "\x00" + v
		}
	}
	names := make([]string, 0, len(p))
	for k := range p {
		names = append(names, k)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, k := range names {
		b.WriteString(k + "\x00" + p[k] + "\x00")
	}
	return b.String()
}
