package suite

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// DefaultTimeout is the default time limit of a repetition.
const DefaultTimeout = 10 * time.Minute

// Builtin are the names that may be used in braces in commands, files and variables in addition to the parameters.
var Builtin = []string{"program", "ranks", "threads", "cores", "nodes", "dir", "memory-mb"}

var names = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// check reports the faults of a suite beyond its form, and fills in the defaults.
func (r *reader) check(s *Suite) {
	if s.Version != Version {
		r.failKey("version", "is %d: this nearmetal reads version %d", s.Version, Version)
	}
	if !names.MatchString(s.Name) {
		r.failKey("suite", "%s is not a name: use small letters, digits and hyphens, at most 40", text.Quote(s.Name))
	}
	if s.Title == "" {
		s.Title = s.Name
	}
	if len(s.Experiments) == 0 {
		r.failKey("experiments", "there is none")
	}
	for i := range s.Experiments {
		r.like(s.Experiments[:i], &s.Experiments[i], fmt.Sprintf("experiments[%d]", i))
	}
	seen := map[string]bool{}
	for i := range s.Experiments {
		e, key := &s.Experiments[i], fmt.Sprintf("experiments[%d]", i)
		if !names.MatchString(e.Name) {
			r.failKey(key+".name", "%s is not a name: use small letters, digits and hyphens, at most 40", text.Quote(e.Name))
		}
		if seen[e.Name] {
			r.failKey(key+".name", "%s is the name of another experiment of this suite", text.Quote(e.Name))
		}
		seen[e.Name] = true
		r.experiment(e, key)
	}
}

// like fills in the values that an experiment inherits from the earlier one that it names.
func (r *reader) like(earlier []Experiment, e *Experiment, key string) {
	if e.Like == "" {
		return
	}
	at := slices.IndexFunc(earlier, func(o Experiment) bool { return o.Name == e.Like })
	if at < 0 {
		r.failKey(key+".like", "%s is not an earlier experiment of this suite", text.Quote(e.Like))
		return
	}
	to, from := reflect.ValueOf(e).Elem(), reflect.ValueOf(earlier[at])
	for i := range to.NumField() {
		switch to.Type().Field(i).Name {
		case "Name", "Title", "About", "Seed", "Like", "Notes":
			continue
		}
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	e.Programs = slices.Clone(e.Programs) // each inherits its own experiment's values
}

func (r *reader) experiment(e *Experiment, key string) {
	if e.Title == "" {
		e.Title = e.Name
	}
	if e.Timeout == 0 {
		e.Timeout = DefaultTimeout
	}
	if e.Launch == "" {
		e.Launch = "plain"
	}
	if !slices.Contains([]string{"mpi", "plain", LaunchPair}, e.Launch) {
		r.failKey(key+".launch", "%s is none of mpi, plain and pair", text.Quote(e.Launch))
	}
	if e.Launch == LaunchPair {
		e.Hosts = max(e.Hosts, 2)
	}
	if e.Launch == "mpi" && e.Ranks == "" {
		r.failKey(key, "the key ranks is missing: how many ranks the MPI program has")
	}
	if !slices.Contains(rankRules, e.RanksRule) {
		r.failKey(key+".ranks-rule", "%s is none of square, power of 2 and any", text.Quote(e.RanksRule))
	}
	for name, values := range e.Memory {
		for value, size := range values {
			if _, err := spec.ParseSize(size); err != nil {
				r.failKey(key+".memory."+name+"."+value, "%v", err)
			}
		}
	}
	if e.Launch != "mpi" && e.Ranks != "" {
		r.failKey(key+".ranks", "is for launch: mpi")
	}
	if len(e.Programs) == 0 {
		r.failKey(key, "the key programs is missing: what is run")
	}
	if e.Repetitions > 1000 {
		r.failKey(key+".repetitions", "is more than 1000")
	}
	known := append([]string{}, Builtin...)
	for _, p := range append(slices.Clone(e.Parameters), e.Sweep...) {
		at := key + ".parameters." + p.Name
		if !parameterNames.MatchString(p.Name) {
			r.failKey(at, "%s is not the name of a parameter: use small letters, digits and hyphens", text.Quote(p.Name))
		}
		if slices.Contains(known, p.Name) && !(p.Name == "ranks" || p.Name == "threads" || p.Name == "nodes") {
			r.failKey(at, "there are two parameters of this name, or it is one of nearmetal's own: %s", strings.Join(Builtin, ", "))
		}
		known = append(known, p.Name)
		if len(p.Values) == 0 {
			r.failKey(at, "has no values")
		}
	}
	for _, p := range e.Parameters {
		for _, values := range p.Papers {
			if len(values) > 1 {
				r.failKey(key+".parameters."+p.Name, "has several values: put it under sweep")
			}
		}
		if len(p.Values) > 1 || len(p.Quick) > 1 || len(p.Emulated) > 1 {
			r.failKey(key+".parameters."+p.Name, "has several values: put it under sweep")
		}
	}
	r.texts(e, key, known)
	r.outputs(e.Output, key+".output")
	r.checks(e.Check, key+".check")
	r.programs(e, key, known)
}

// texts checks all texts that have parameters in braces.
func (r *reader) texts(e *Experiment, key string, known []string) {
	r.template(key+".ranks", e.Ranks, known)
	r.template(key+".threads", e.Threads, known)
	for name, value := range e.Env {
		if !variableNames.MatchString(name) {
			r.failKey(key+".env."+name, "is not the name of a variable")
		}
		r.template(key+".env."+name, value, known)
	}
	for name, text := range e.Files {
		if !plainFile(name) {
			r.failKey(key+".files."+name, "is not a file name: write one without a slash")
		}
		r.template(key+".files."+name, text, known)
	}
	for i, words := range e.Prepare {
		if len(words) == 0 {
			r.failKey(fmt.Sprintf("%s.prepare[%d]", key, i), "is empty")
		}
		r.template(fmt.Sprintf("%s.prepare[%d]", key, i), strings.Join(words, " "), known)
	}
	r.template(key+".command", strings.Join(e.Command, " "), known)
	if e.Read != "" && !plainFile(e.Read) {
		r.failKey(key+".read", "%s is not a file name: write one without a slash", text.Quote(e.Read))
	}
}

// plainFile reports whether name is one of a file in the working directory.
func plainFile(name string) bool {
	return name != "" && name == filepath.Base(name) && !strings.HasPrefix(name, ".") && len(name) < 200
}

func (r *reader) programs(e *Experiment, key string, known []string) {
	for i := range e.Programs {
		p, at := &e.Programs[i], fmt.Sprintf("%s.programs[%d]", key, i)
		switch {
		case p.Name == "":
			r.failKey(at, "the key name is missing")
		case (p.Kernel == "") == (len(p.Find) == 0):
			r.failKey(at, "has to have one of find and kernel")
		case p.Kernel != "" && !names.MatchString(p.Kernel):
			r.failKey(at+".kernel", "%s is not a name", text.Quote(p.Kernel))
		}
		if slices.Contains(p.Find, "") {
			r.failKey(at+".find", "a name is empty")
		}
		r.template(at+".command", strings.Join(p.Command, " "), known)
		r.template(at+".version", strings.Join(p.Version, " "), []string{"program"})
		r.pattern(at+".version-match", p.VersionMatch, true)
		r.outputs(p.Output, at+".output")
		r.checks(p.Check, at+".check")
		inherit(p, e)
		if len(p.Command) == 0 {
			r.failKey(at, "has no command, nor has the experiment")
		}
		if len(p.Output) == 0 {
			r.failKey(at, "has no output, nor has the experiment: what is measured")
		}
		if p.Read != "" && !plainFile(p.Read) {
			r.failKey(at+".read", "%s is not a file name: write one without a slash", text.Quote(p.Read))
		}
	}
}

// inherit fills in a program's missing values from its experiment.
func inherit(p *Program, e *Experiment) {
	if p.Command == nil {
		p.Command = e.Command
	}
	if p.Read == "" {
		p.Read = e.Read
	}
	if p.Output == nil {
		p.Output = e.Output
	}
	if p.Check == nil {
		p.Check = e.Check
	}
}

func (r *reader) outputs(list []Output, key string) {
	seen := map[string]bool{}
	for i := range list {
		o, at := &list[i], fmt.Sprintf("%s[%d]", key, i)
		if o.Metric == "" || seen[o.Metric] {
			r.failKey(at, "has no metric of its own")
		}
		seen[o.Metric] = true
		if o.Unit == "" {
			r.failKey(at, "the key unit is missing")
		}
		if o.Better != "up" && o.Better != "down" {
			r.failKey(at+".better", "%s is neither up nor down", text.Quote(o.Better))
		}
		if o.Kind == "" {
			o.Kind = "bar"
		}
		if !slices.Contains([]string{"size", "scaling", "sweep", "bar"}, o.Kind) {
			r.failKey(at+".kind", "%s is none of size, scaling, sweep, bar", text.Quote(o.Kind))
		}
		if o.Kind == "size" && o.X == "" {
			o.X = "size"
		}
		if o.Kind != "bar" && o.X == "" {
			r.failKey(at, "the key x is missing: the parameter on the x axis")
		}
		sources := 0
		for _, is := range []bool{o.Match != "", o.JSON != "", o.Wall} {
			if is {
				sources++
			}
		}
		if sources != 1 {
			r.failKey(at, "has to have one of match, json and wall: where the value is")
		}
		if o.JSON != "" && o.Value == "" {
			r.failKey(at, "the key value is missing: the key of the value in the JSON objects")
		}
		if o.MayLack && i == 0 {
			r.failKey(at+".may-lack", "the first output has to be there: a repetition needs a value")
		}
		r.pattern(at+".match", o.Match, o.Match != "")
	}
}

func (r *reader) checks(list []Check, key string) {
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		if (c.Match == "") == (c.Absent == "") {
			r.failKey(at, "has to have one of match and absent")
		}
		bounds := c.Min != nil || c.Max != nil
		if bounds && c.Match == "" {
			r.failKey(at, "min and max are for match")
		}
		r.pattern(at+".match", c.Match, bounds)
		r.pattern(at+".absent", c.Absent, false)
	}
}

// pattern checks a regular expression; with value it must have a group of that name.
func (r *reader) pattern(key, text string, value bool) {
	if text == "" {
		return
	}
	re, err := Regexp(text)
	if err != nil {
		r.failKey(key, "is not a regular expression: %v", err)
	} else if value && re.SubexpIndex("value") < 0 {
		r.failKey(key, "has no group (?P<value>…) around the value")
	}
}

// Regexp compiles an expression of a suite: ^ and $ are at the beginning and end of lines.
func Regexp(text string) (*regexp.Regexp, error) {
	if len(text) > 2000 {
		return nil, fmt.Errorf("it is longer than 2000 characters")
	}
	return regexp.Compile("(?m)" + text)
}

// template checks the names in braces of a text.
func (r *reader) template(key, template string, known []string) {
	if err := eachName(template, func(name string) error {
		base, _, _ := strings.Cut(name, ".")
		if slices.Contains(known, base) {
			return nil
		}
		if near := spec.Nearest(base, known); near != "" {
			return fmt.Errorf("there is no parameter {%s}: did you mean {%s}?", text.Clip(name, 40), near)
		}
		return fmt.Errorf("there is no parameter {%s}: write {{ for a brace", text.Clip(name, 40))
	}); err != nil {
		r.failKey(key, "%v", err)
	}
}
