package importer

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/text"
)

var (
	// Prefixes of lines: Open MPI's --timestamp-output and --tag-output, those of srun -l, of MPICH's -prepend-rank
	// and of Intel MPI's -l.
	timePrefix = lazyregexp.New(`^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(<std(?:out|err)>: ?)?`)
	tagPrefix  = lazyregexp.New(`^\[(?:[^\[\]\s,]{1,100}@)?(\d{1,9},\d{1,9})\]<std(?:out|err)>: ?`)
	rankPrefix = lazyregexp.New(`^\s{0,8}(?:(\d{1,7}):(?: |$)|\[(\d{1,7})\](?: |$))`)

	osuNumber = lazyregexp.New(`^\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?$`)
	// osuLikeNumber matches what a broken row still has in place for a number.
	osuLikeNumber = lazyregexp.New(`(?i)^[-+]?(?:[\d.]|nan|inf)`)
	// osuNoValue matches the text that a test prints if it has no result.
	osuNoValue = lazyregexp.New(`(?i)^(?:-\d{1,30}(?:\.\d{1,30})?|[-+]?(?:nan|inf))$`)

	// Lines that state how a test was run.
	osuSettings = []struct {
		match func() *regexp.Regexp
		use   func(s *osuSetting, m []string)
	}{
		{lazyregexp.New(`^# Overall = Coll\. Init \+ Compute \+ MPI_Test \+ MPI_Wait$`), func(*osuSetting, []string) {}},
		{lazyregexp.New(`^# \[ pairs: (\d{1,7}) \](?: \[ window size: (\d{1,7}) \])?$`), func(s *osuSetting, m []string) {
			if s.pairs = m[1]; m[2] != "" && m[2] != "64" {
				s.window = "window of " + m[2]
			}
		}},
		{lazyregexp.New(`^# Window creation: (MPI_Win_\S{1,60})$`), func(s *osuSetting, m []string) { s.creation = unless(m[1], "MPI_Win_allocate") }},
		{lazyregexp.New(`^# Synchronization: (MPI_Win_\S{1,60})$`), func(s *osuSetting, m []string) { s.sync = unless(m[1], "MPI_Win_flush") }},
		{lazyregexp.New(`^# (?:MPI_)?Datatype: ([A-Za-z]\w{0,60})\.?$`), func(s *osuSetting, m []string) { s.datatype = unless(m[1], "MPI_CHAR", "MPI_BYTE") }},
		{lazyregexp.New(`^# (?:ACC )?Operation: (MPI_\w{1,60}), Datatype: (\w{1,60})\.?$`), func(s *osuSetting, m []string) {
			s.operation, s.datatype = unless(m[1], "MPI_SUM"), unless(m[2], "MPI_CHAR", "MPI_BYTE")
		}},
		{lazyregexp.New(`^# (?:Send Buffer|Rank 0 Memory) on \w+ \((M?[DHM])\) and (?:Receive Buffer|Rank 1 Memory) on \w+ \((M?[DHM])\)$`), func(s *osuSetting, m []string) {
			s.buffers = "buffers " + m[1] + " " + m[2]
		}},
	}
	// Lines before a test's title that state how it is run.
	osuBefore = lazyregexp.New(`^# Number of (Sender|Receiver|forked) (?:threads|processes in (sender|receiver)): (\d{1,7})$`)

	// osuFailed matches messages of launchers and MPI libraries for a program that failed, and of the tests for a
	// wrong result.
	osuFailed = lazyregexp.New(`DATA VALIDATION ERROR|^FAILED: .* fail data validation|MPI_ABORT was invoked|BAD TERMINATION OF ONE OF YOUR APPLICATION|` +
		`(?:mpirun|mpiexec|prterun|orterun)\S* (?:noticed|detected|was unable)|exited on signal|total processes (?:killed|failed)|` +
		`(?:srun|slurmstepd\S*): error:|Segmentation fault|Bus error|Aborting job|Fatal error in`)
	osuFailedSize = lazyregexp.New(`on\s+message size (\d{1,20})`)
)

// unless returns s, or "" if it is the usual value.
func unless(s string, usual ...string) string {
	if slices.Contains(usual, s) {
		return ""
	}
	return s
}

// osuSetting distinguishes runs of a test. A field is empty if it has its usual value.
type osuSetting struct {
	accelerator, buffers, window, creation, sync, operation, datatype string
	before                                                            []string // threads and processes
	pairs                                                             string
}

// words returns a case's title's words for a setting.
func (s *osuSetting) words() []string {
	list := append([]string{s.accelerator, s.buffers, s.window, s.creation, s.sync, s.operation, s.datatype}, s.before...)
	return slices.DeleteFunc(list, func(w string) bool { return w == "" })
}

// osuColumn is a column of a table: only its name, or also its result.
type osuColumn struct {
	name                 string
	metric, unit, better string
}

// osuColumns are the columns that the tests print.
var osuColumns = []osuColumn{
	{name: "Size (B)"}, {name: "Size"}, {name: "Compute(us)"}, {name: "Coll. Init(us)"}, {name: "MPI_Test(us)"}, {name: "MPI_Wait(us)"},
	{name: "Min Comm.(us)"}, {name: "Max Comm.(us)"}, {name: "Wait avg(us)"}, {name: "Init avg(us)"}, {name: "Min Latency(us)"}, {name: "Max Latency(us)"}, {name: "Iterations"}, {name: "Validation"},
	{"Avg Latency(us)", "latency", "us", "down"}, {"Latency (us)", "latency", "us", "down"},
	{"Bandwidth (MB/s)", "bandwidth", "MB/s", "up"}, {"MB/s", "bandwidth", "MB/s", "up"}, {"Messages/s", "message rate", "messages/s", "up"},
	{"Overall(us)", "overall", "us", "down"}, {"Pure Comm.(us)", "pure communication", "us", "down"}, {"Overlap(%)", "overlap", "%", "up"},
}

// osuTail matches a column of a percentile, which may be as wide as its field.
var osuTail = lazyregexp.New(`^P\d{1,2} Tail (?:Lat\(us\)|BW\(MB/s\))`)

// osuResults are the results of a form, in the order of their columns. The first has the bare name of the case.
var osuResults = map[form][]string{
	formLatency: {"latency"}, formBar: {"latency"}, formBandwidth: {"bandwidth"}, formRate: {"message rate"},
	formRates: {"bandwidth", "message rate"}, formOverlap: {"overall", "pure communication", "overlap"}, formOverlapBar: {"overall", "pure communication", "overlap"},
}

// columnsOf splits the head of a table into its columns; rest is the unknown part.
func columnsOf(head string) (list []osuColumn, rest string) {
next:
	for rest = strings.TrimSpace(strings.TrimPrefix(head, "#")); rest != ""; rest = strings.TrimSpace(rest) {
		if tail := osuTail().FindString(rest); tail != "" {
			list, rest = append(list, osuColumn{name: tail}), rest[len(tail):]
			continue
		}
		for _, c := range osuColumns {
			if after, ok := strings.CutPrefix(rest, c.name); ok && (after == "" || after[0] == ' ') {
				list, rest = append(list, c), after
				continue next
			}
		}
		return list, rest
	}
	return list, ""
}

// osuReader parses consecutive outputs of OSU programs: a repetition each.
type osuReader struct {
	file     string // its name without the directory
	r        *Result
	reps     map[string]int // by case
	line     int
	before   []string // lines on threads that belong to the next title
	title    string   // of the current test, with accelerator and version; "" before the first
	prefix   string   // of its lines
	tests    []osuTest
	setting  osuSetting
	columns  []osuColumn // nil before the head of the table
	over     bool        // other lines have ended the table
	cases    []record.Case
	sizes    map[string]bool // of the table's rows
	first    int             // of the table's samples
	ofTitle  int             // index of the first sample under the title
	tableRep int
}

func osu(file string, text []byte) (*Result, error) {
	o := &osuReader{file: file, r: &Result{}, reps: map[string]int{}}
	for len(text) > 0 {
		var line []byte
		if at := bytes.IndexByte(text, '\n'); at < 0 {
			line, text = text, nil
		} else {
			line, text = text[:at], text[at+1:]
		}
		o.line++
		if err := o.read(strings.TrimRight(string(line), " \t\r")); err != nil {
			return nil, err
		}
		if len(o.r.Samples) > maxValues {
			return nil, fmt.Errorf("there are more than %d values", maxValues)
		}
	}
	if o.title == "" {
		return nil, fmt.Errorf("no line begins with a title of the OSU micro-benchmarks, such as # OSU MPI Latency Test")
	}
	return o.r, o.endTitle()
}

// fail returns an error that names line and title.
func (o *osuReader) fail(format string, a ...any) error {
	return fmt.Errorf("line %d: %q: %w", o.line, clip(o.title), fmt.Errorf(format, a...))
}

// unprefixed splits a line into a launcher's prefix and the rest, without trailing blanks.
func unprefixed(line string) (prefix, rest string) {
	if line == "" || line[0] == '#' {
		return "", line
	}
	if m := timePrefix().FindStringSubmatchIndex(line); m != nil {
		if line = line[m[1]:]; m[2] >= 0 {
			return "time", line
		}
	}
	if m := tagPrefix().FindStringSubmatch(line); m != nil {
		return m[1], line[len(m[0]):]
	}
	if m := rankPrefix().FindStringSubmatch(line); m != nil {
		return m[1] + m[2], line[len(m[0]):]
	}
	return "", line
}

func (o *osuReader) read(raw string) error {
	prefix, line := unprefixed(raw)
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return nil
	case strings.HasPrefix(line, "# OSU ") || strings.HasPrefix(line, "# OMB"):
		return o.begin(prefix, line[2:])
	case strings.Contains(line, "# OSU ") || strings.Contains(line, "# OMB"):
		return fmt.Errorf("line %d: %q: a title stands behind other text, which is not known", o.line, clip(line[strings.Index(line, "# O")+2:]))
	case o.setBefore(line):
		return nil
	case line[0] != '#' && (len(fields) < 2 || !osuNumber().MatchString(fields[1])) && osuFailed().MatchString(line):
		return o.failed(line)
	case o.title == "":
		return nil
	case line[0] == '#':
		return o.comment(line)
	}
	return o.row(prefix, line, fields)
}

// begin begins the test of a title.
func (o *osuReader) begin(prefix, line string) error {
	if err := o.endTitle(); err != nil {
		return err
	}
	title, accelerator, _ := titleOf(line)
	o.title, o.prefix, o.columns, o.over, o.ofTitle = line, prefix, nil, false, len(o.r.Samples)
	o.setting = osuSetting{accelerator: accelerator, before: o.before}
	o.before = nil
	switch o.tests = osuTests()[title]; {
	case o.tests == nil:
		return o.fail("this title is none of the OSU micro-benchmarks 5.0 to 7.5: nothing of the file is imported")
	case o.tests[0].form == formNone:
		return o.fail("its output %s: leave it out of the file", refused)
	}
	return nil
}

// setBefore stores a line that precedes its title, and reports whether line is one.
func (o *osuReader) setBefore(line string) bool {
	m := osuBefore().FindStringSubmatch(line)
	if m == nil {
		return false
	}
	if m[1] == "forked" {
		m[1] = "processes in " + m[2]
	} else {
		m[1] = strings.ToLower(m[1]) + " threads"
	}
	o.before = append(o.before, m[3]+" "+m[1])
	return true
}

// comment parses a line that begins with #: a setting, or the head of a table.
func (o *osuReader) comment(line string) error {
	for _, s := range osuSettings {
		if m := s.match().FindStringSubmatch(line); m != nil {
			if len(o.sizes) > 0 {
				o.columns = nil // the next table of the same title
			}
			s.use(&o.setting, m)
			return nil
		}
	}
	columns, rest := columnsOf(line)
	switch {
	case len(columns) > 0 && rest == "":
		return o.head(columns)
	case o.columns == nil || len(columns) > 0:
		return o.fail("%q is not known", clip(line))
	}
	o.over = true // another program's line: later rows would belong to it
	return nil
}

// head begins a table. Its columns show which of the tests with this title it is.
func (o *osuReader) head(columns []osuColumn) error {
	sized := columns[0].name == "Size" || columns[0].name == "Size (B)"
	for _, t := range o.tests {
		want, have := osuResults[t.form], []string{}
		for i, c := range columns {
			if c.metric != "" {
				have = append(have, c.metric)
			}
			if i > 0 && strings.HasPrefix(c.name, "Size") {
				return o.fail("%s is a column twice", c.name)
			}
		}
		bar := t.form == formBar || t.form == formOverlapBar
		// Without the rates of messages (-R 0), and OpenSHMEM's without the overall time, a table has fewer columns.
		fits := slices.Equal(have, want) || t.form == formRates && slices.Equal(have, want[:1]) || t.form == formOverlap && slices.Equal(have, want[1:])
		if fits && sized != bar {
			o.columns, o.over, o.sizes, o.cases = columns, false, map[string]bool{}, nil
			o.first = len(o.r.Samples)
			o.tests = []osuTest{t}
			return nil
		}
	}
	return o.fail("these are not the columns of this test")
}

// named returns the program after which a file is named, the longest if a name begins with another's; "": none.
func named(file string, programs []string) string {
	best := ""
	for _, p := range programs {
		_, rest, ok := strings.Cut(file, "osu_"+p)
		letter := rest != "" && (rest[0] >= 'a' && rest[0] <= 'z' || rest[0] >= 'A' && rest[0] <= 'Z')
		if ok && !letter && len(p) > len(best) {
			best = p
		}
	}
	return best
}

// begun makes the cases of a table, before its first row.
func (o *osuReader) begun() {
	t := o.tests[0]
	if p := named(o.file, t.programs); p != "" {
		t.programs = []string{p}
	}
	name, title := "osu/"+t.programs[0], "OSU osu_"+t.programs[0]
	program := "OSU osu_" + strings.Join(t.programs, ", osu_")
	if at := strings.LastIndex(program, ", "); at > 0 {
		program = program[:at] + " or " + program[at+2:]
		o.r.note(fmt.Sprintf("%q is the title of %s: its values are those of %s", t.title, program[len("OSU "):], name))
	}
	if words := o.setting.words(); len(words) > 0 {
		name += "-" + slug(strings.Join(words, "-"))
		title += " (" + strings.Join(words, ", ") + ")"
	}
	for _, column := range o.columns {
		if column.metric == "" {
			continue
		}
		c := record.Case{Name: name, Title: title, Suite: "osu", Program: program, Metric: column.metric, Unit: column.unit, Better: column.better, Kind: "size", X: "size"}
		if len(o.cases) > 0 {
			c.Name += "." + strings.ReplaceAll(column.metric, " ", "-")
			c.Title += ": " + column.metric
		}
		if t.form == formBar || t.form == formOverlapBar {
			c.Kind, c.X = "bar", ""
		}
		o.r.add(c)
		o.cases = append(o.cases, c)
	}
	o.tableRep = o.reps[name]
	o.reps[name]++
}

// row parses a row of the table. A line that does not begin as a row is a message of the MPI library between rows.
func (o *osuReader) row(prefix, line string, f []string) error {
	sized := o.columns != nil && strings.HasPrefix(o.columns[0].name, "Size")
	switch {
	case o.columns == nil || o.over:
		if len(f) > 1 && osuNumber().MatchString(f[0]) && osuNumber().MatchString(f[1]) {
			return o.fail("%q stands without the head of its table", clip(line))
		}
		return nil
	case !osuLikeNumber().MatchString(f[0]):
		return nil
	case prefix != o.prefix:
		return o.fail("%q is of another rank or job than the title", clip(line))
	case len(f) != len(o.columns):
		return o.fail("%q has %d fields, where the table has %d", clip(line), len(f), len(o.columns))
	}
	point, failure := map[string]string{}, ""
	var values []float64
	for i, c := range o.columns {
		if c.name == "Validation" {
			switch strings.ToLower(f[i]) {
			case "pass", "passed", "skipped":
			case "fail", "failed":
				failure = "the test says that the data are wrong: validation " + strings.ToLower(f[i])
			default:
				return o.fail("%q has %q as its validation", clip(line), clip(f[i]))
			}
			continue
		}
		v, err := strconv.ParseFloat(f[i], 64)
		switch {
		case i == 0 && sized:
			if _, err := strconv.ParseUint(f[0], 10, 62); err != nil {
				return o.fail("%q begins with no size", clip(line))
			}
			point["size"] = f[0]
			continue
		case osuNumber().MatchString(f[i]) && err == nil:
		case osuNoValue().MatchString(f[i]):
			if c.metric != "" {
				v, failure = 0, "the value is "+strings.ToLower(f[i])
			}
		default:
			return o.fail("%q has %q as %s", clip(line), clip(f[i]), c.name)
		}
		if c.metric != "" {
			values = append(values, v)
		}
	}
	if o.sizes[point["size"]] {
		return o.fail("%q is there twice", clip(f[0]))
	}
	if len(o.cases) == 0 {
		o.begun()
	}
	if o.sizes[point["size"]] = true; o.setting.pairs != "" {
		point["pairs"] = o.setting.pairs
	}
	for i, c := range o.cases {
		s := record.Sample{Case: c.Name, Point: point, Rep: o.tableRep, Value: values[i], OK: failure == "", Error: failure}
		if !s.OK {
			s.Value = 0
		}
		o.r.Samples = append(o.r.Samples, s)
	}
	return nil
}

// failed marks the values of a test that failed according to a line: those of its size, or all.
func (o *osuReader) failed(line string) error {
	size := ""
	if m := osuFailedSize().FindStringSubmatch(line); m != nil {
		size = m[1]
	}
	for i := o.ofTitle; i < len(o.r.Samples); i++ {
		if s := &o.r.Samples[i]; size == "" || s.Point["size"] == size {
			s.Value, s.OK, s.Error = 0, false, "the program failed: "+clip(line)
		}
	}
	return nil
}

// endTitle ends a test. A test without a row is an error: its program failed, or its output has an unknown form.
func (o *osuReader) endTitle() error {
	if o.title != "" && len(o.r.Samples) == o.ofTitle {
		return o.fail("it has no lines of results")
	}
	return nil
}

// slug converts a text into lower-case letters, digits and hyphens.
func slug(s string) string {
	return strings.Trim(strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "-"), "-")
}

// clip returns a result's text for a message, at most 120 bytes of it.
func clip(s string) string { return text.Clip(s, 120) }
