// Package export writes a run's samples as a table for other programs.
package export

import (
	"encoding/csv"
	"io"
	"sort"
	"strconv"
	"time"

	"nearmetal/internal/bench/record"
)

// CSV writes a line for each sample (RFC 4180): its run, case and variant, a column for each parameter of any
// sample's point, and the value in its unit.
func CSV(w io.Writer, r *record.Run, samples []record.Sample) error {
	cases := map[string]record.Case{}
	for _, c := range r.Cases {
		cases[c.Name] = c
	}
	variants := map[string]record.Variant{}
	for _, v := range r.Variants {
		variants[v.Label] = v
	}
	names := parameters(samples)
	out := csv.NewWriter(w)
	head := append([]string{"run", "case", "variant", "kind", "emulated"}, names...)
	if err := out.Write(append(head, "rep", "metric", "value", "unit", "ok", "error", "at", "seconds")); err != nil {
		return err
	}
	for _, s := range samples {
		c, v := cases[s.Case], variants[s.Variant]
		line := []string{r.ID, s.Case, s.Variant, v.Kind, strconv.FormatBool(v.Emulated)}
		for _, name := range names {
			line = append(line, s.Point[name])
		}
		value := ""
		if s.OK {
			value = strconv.FormatFloat(s.Value, 'g', -1, 64)
		}
		line = append(line, strconv.Itoa(s.Rep), c.Metric, value, c.Unit, strconv.FormatBool(s.OK), s.Error,
			s.At.UTC().Format(time.RFC3339Nano), strconv.FormatFloat(s.Seconds, 'g', -1, 64))
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func parameters(samples []record.Sample) []string {
	seen := map[string]bool{}
	var names []string
	for _, s := range samples {
		for name := range s.Point {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	sort.Strings(names)
	return names
}
