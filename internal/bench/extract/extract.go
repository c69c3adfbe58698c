// Package extract parses the values and the checks of a benchmark from its program's output.
package extract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"nearmetal/internal/bench/suite"
	"nearmetal/internal/text"
)

// Value is one measured value.
type Value struct {
	Output int               // index of its output
	Point  map[string]string // parameters that the output itself states
	Value  float64           // in the output's unit
}

// maxValues of a repetition, and maxText of a parameter's value in characters.
const (
	maxValues = 100_000
	maxText   = 200
)

// Context has the inputs of values in addition to the text.
type Context struct {
	Seconds float64 // wall clock of the repetition
	Peak    float64 // theoretical peak of its cores in GFLOP/s; 0: not known
}

// Error is an output that does not parse, or is wrong: Near has lines of it for a person.
type Error struct {
	What string
	Near []string
}

func (e *Error) Error() string { return e.What }

// Lines returns the error and the lines that it is about.
func (e *Error) Lines() []string {
	out := []string{e.What}
	for _, l := range e.Near {
		out = append(out, "  | "+l)
	}
	return out
}

// Values returns the values of all outputs in a program's text. It fails if an output has none, except one that may
// lack.
func Values(printed []byte, outputs []suite.Output, c Context) ([]Value, error) {
	var all []Value
	for i, o := range outputs {
		var list []Value
		var err error
		switch {
		case o.Wall:
			list = []Value{{Value: c.Seconds}}
		case o.JSON != "":
			list, err = fromJSON(printed, o)
		default:
			list, err = fromText(printed, o)
		}
		if err == nil && len(list) == 0 && !o.MayLack {
			err = fmt.Errorf("has no %s", o.Metric)
		}
		if err != nil {
			return nil, &Error{What: "the output " + err.Error(), Near: Ends(printed)}
		}
		for _, v := range list {
			if v.Value, err = scaled(v.Value, o, c); err != nil {
				return nil, &Error{What: err.Error(), Near: Ends(printed)}
			}
			v.Output = i
			all = append(all, v)
		}
		if len(all) > maxValues {
			return nil, &Error{What: fmt.Sprintf("the output has more than %d values", maxValues), Near: Ends(printed)}
		}
	}
	return all, nil
}

func scaled(v float64, o suite.Output, c Context) (float64, error) {
	if o.Scale != 0 {
		v *= o.Scale
	}
	if o.Peak {
		if c.Peak <= 0 {
			return 0, fmt.Errorf("the theoretical peak of this processor is not known: give it with --peak-gflops")
		}
		v *= 100 / c.Peak
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("the output's %s is not a number", o.Metric)
	}
	return v, nil
}

func fromText(printed []byte, o suite.Output) ([]Value, error) {
	re, err := suite.Regexp(o.Match)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %v", err)
	}
	var out []Value
	for _, m := range re.FindAllSubmatch(printed, maxValues+1) {
		v := Value{}
		for i, name := range re.SubexpNames() {
			switch part := string(m[i]); {
			case name == "":
			case name == "value":
				if v.Value, err = number(part); err != nil {
					return nil, fmt.Errorf("has %s as its %s", text.Quote(part), o.Metric)
				}
			default:
				if v.Point == nil {
					v.Point = map[string]string{}
				}
				v.Point[name] = text.Clip(part, maxText)
			}
		}
		out = append(out, v)
	}
	if o.Last && len(out) > 1 {
		out = out[len(out)-1:]
	}
	return out, nil
}

// number parses a number as programs print it, including Fortran's D exponents and commas between thousands.
func number(s string) (float64, error) {
	s = strings.ReplaceAll(strings.TrimSpace(s), ",", "")
	f, err := strconv.ParseFloat(strings.NewReplacer("D", "E", "d", "e").Replace(s), 64)
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		err = fmt.Errorf("no number")
	}
	return f, err
}

// fromJSON reads objects at a path such as "a.b[]" from the first JSON document in the text.
func fromJSON(printed []byte, o suite.Output) ([]Value, error) {
	start := bytes.IndexByte(printed, '{')
	if start < 0 {
		return nil, fmt.Errorf("has no JSON document")
	}
	d := json.NewDecoder(bytes.NewReader(printed[start:]))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("is not a whole JSON document: %v", err)
	}
	list, err := walk(doc, o.JSON)
	if err != nil {
		return nil, err
	}
	var out []Value
	for _, item := range list {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("has something else than objects at %s", o.JSON)
		}
		v := Value{}
		if v.Value, err = number(word(object[o.Value])); err != nil {
			return nil, fmt.Errorf("has %s as %s at %s", text.Quote(word(object[o.Value])), o.Value, o.JSON)
		}
		for name, key := range o.Point {
			if v.Point == nil {
				v.Point = map[string]string{}
			}
			v.Point[name] = text.Clip(word(object[key]), maxText)
		}
		out = append(out, v)
	}
	return out, nil
}

// walk follows a path of keys with dots between them; [] after a key goes into each item of a list.
func walk(doc any, path string) ([]any, error) {
	at := []any{doc}
	for _, step := range strings.Split(path, ".") {
		key, each := strings.CutSuffix(step, "[]")
		var next []any
		for _, v := range at {
			if key != "" {
				object, _ := v.(map[string]any)
				if v = object[key]; v == nil {
					return nil, fmt.Errorf("has no %s in its JSON document", key)
				}
			}
			if !each {
				next = append(next, v)
				continue
			}
			list, ok := v.([]any)
			if !ok {
				return nil, fmt.Errorf("has no list at %s in its JSON document", step)
			}
			next = append(next, list...)
		}
		if at = next; len(at) > maxValues {
			return nil, fmt.Errorf("has more than %d values", maxValues)
		}
	}
	return at, nil
}

func word(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return "something else"
}

// Check compares a program's text with the checks of its result.
func Check(printed []byte, checks []suite.Check) error {
	for _, c := range checks {
		if err := checkOne(printed, c); err != nil {
			if c.Says != "" {
				err = fmt.Errorf("%s (%v)", c.Says, err)
			}
			return &Error{What: "the result is wrong: " + err.Error(), Near: Ends(printed)}
		}
	}
	return nil
}

func checkOne(printed []byte, c suite.Check) error {
	pattern := c.Match + c.Absent
	re, err := suite.Regexp(pattern)
	if err != nil {
		return err
	}
	found := re.FindAllSubmatch(printed, maxValues)
	if c.Absent != "" {
		if len(found) > 0 {
			return fmt.Errorf("the output has %s", text.Quote(string(found[0][0])))
		}
		return nil
	}
	if len(found) == 0 {
		return fmt.Errorf("the output has nothing that matches %s", c.Match)
	}
	if c.Min == nil && c.Max == nil {
		return nil
	}
	for _, m := range found {
		part := string(m[re.SubexpIndex("value")])
		v, err := number(part)
		switch {
		case err != nil:
			return fmt.Errorf("%s is not a number", text.Quote(part))
		case c.Min != nil && v < *c.Min:
			return fmt.Errorf("%s is below %g", text.Clip(part, maxText), *c.Min)
		case c.Max != nil && v > *c.Max:
			return fmt.Errorf("%s is above %g", text.Clip(part, maxText), *c.Max)
		}
	}
	return nil
}

// Ends returns the last lines of a text, for a person: at most ten, printable, not long.
func Ends(printed []byte) []string {
	if len(printed) > 8192 {
		printed = printed[len(printed)-8192:]
	}
	lines := strings.Split(strings.TrimRight(string(printed), "\n"), "\n")
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	if len(lines) == 1 && strings.TrimSpace(lines[0]) == "" {
		return []string{"(nothing was printed)"}
	}
	for i, l := range lines {
		lines[i] = text.Clip(l, 160)
	}
	return lines
}
