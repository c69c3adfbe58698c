package suite

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const good = `version: 1
suite: mine
experiments:
  - name: one
    programs: [{name: sleep, find: sleep}]
    command: ["{program}", "{seconds}"]
    sweep: {seconds: [0.1, 0.2]}
    output: [{metric: time, unit: s, better: down, wall: true}]
`

func TestShippedSuites(t *testing.T) {
	list, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		for _, e := range s.Experiments {
			if e.Install == "" && e.Programs[0].Kernel == "" {
				t.Errorf("%s/%s does not say how to install its program", s.Name, e.Name)
			}
			if e.Title == e.Name {
				t.Errorf("%s/%s has no title", s.Name, e.Name)
			}
		}
	}
}

func TestParse(t *testing.T) {
	s, err := Parse("mine.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	e := s.Experiments[0]
	if e.Timeout != 10*time.Minute || e.Launch != "plain" || e.Programs[0].Command[1] != "{seconds}" || e.Output[0].Kind != "bar" {
		t.Errorf("%+v", e)
	}
	if !reflect.DeepEqual(e.Sweep, []Parameter{{Name: "seconds", Values: []string{"0.1", "0.2"}}}) {
		t.Errorf("%+v", e.Sweep)
	}
}

// TestMistakes: every mistake is reported with its place.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"version: 1", "version: 2", "m.yaml:1:10: version: is 2"},
		{"suite: mine", "suite: My Own", "m.yaml:2:8: suite: \"My Own\" is not a name"},
		{"suite: mine", "siute: mine", "m.yaml:2:1: unknown key \"siute\": did you mean suite?"},
		{"find: sleep", "fnid: sleep", "m.yaml:5:30: experiments[0].programs[0]: unknown key \"fnid\": did you mean find?"},
		{"{seconds}\"]", "{second}\"]", "experiments[0].command: there is no parameter {second}: did you mean {seconds}?"},
		{"{seconds}\"]", "{seconds\"]", "a brace is not closed"},
		{"better: down", "better: lower", "m.yaml:8:46: experiments[0].output[0].better: \"lower\" is neither up nor down"},
		{"better: down", "better: down, may-lack: true", "experiments[0].output[0].may-lack: the first output has to be there"},
		{"wall: true", "match: '(x'", "is not a regular expression"},
		{"wall: true", "match: x", "has no group (?P<value>…)"},
		{"wall: true", "json: a", "the key value is missing"},
		{"wall: true", "kind: size", "one of match, json and wall"},
		{"{seconds: [0.1, 0.2]}", "{dir: 1}", "there are two parameters of this name, or it is one of nearmetal's own"},
		{"sweep:", "launch: mpi\n    sweep:", "the key ranks is missing"},
		{"sweep:", "launch: both\n    sweep:", "\"both\" is none of mpi, plain and pair"},
		{"sweep:", "launch: pair\n    ranks: 2\n    sweep:", "is for launch: mpi"},
		{"sweep:", "timeout: soon\n    sweep:", `"soon" is not a time`},
		{"sweep:", "files: {../x: a}\n    sweep:", "is not a file name"},
		{"sweep:", "env: {a b: a}\n    sweep:", "is not the name of a variable"},
		{"sweep:", "\tsweep:", "is not YAML"},
		{"name: one", "name: &a one", "anchors, aliases and tags"},
		{"name: one", "name:", "has no value"},
		{"name: one", "name: one\n    name: two", "stands in line 4 already"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the suite", c.old)
		}
		_, err := Parse("m.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "m.yaml:") {
			t.Errorf("%s: %v\nwant %s", c.new, err, c.want)
		}
	}
	if _, err := Parse("m.yaml", nil); err == nil {
		t.Error("an empty suite is right")
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"n": "8", "grid": "2x4"}
	for text, want := range map[string]string{
		"-n {n}": "-n 8", "{grid.0} {grid.1}": "2 4", "{{n}} ${{n}": "{n} ${n}", "": "",
	} {
		if got, err := Expand(text, values); got != want || err != nil {
			t.Errorf("%q: %q %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"{m}", "{n", "{grid.2}", "{grid.-1}", "{n.x}"} {
		if got, err := Expand(text, values); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestCounts(t *testing.T) {
	if got, err := Spread([]string{"1..all", "3"}, 6, true); err != nil || !reflect.DeepEqual(got, []string{"1", "2", "4", "6", "3"}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := Spread([]string{"1..all", "all/2"}, 6, false); err != nil || !reflect.DeepEqual(got, []string{"1", "2", "4", "all", "all/2"}) {
		t.Errorf("%v %v", got, err)
	}
	for value, want := range map[string]int{"all": 48, "all/2": 24, "all/100": 1, "7": 7, "2x4": 8} {
		if got, err := Count(value, 48); got != want || err != nil {
			t.Errorf("%s: %d %v", value, got, err)
		}
	}
	for _, value := range []string{"", "al", "all/", "all/0", "0", "-1", "2x", "99999999999"} {
		if got, err := Count(value, 48); err == nil {
			t.Errorf("%q is %d", value, got)
		}
	}
	for _, value := range []string{"..", "1..", "x..4", "0..4"} {
		if got, err := Spread([]string{value}, 4, true); err == nil {
			t.Errorf("%q is %v", value, got)
		}
	}
}

func TestSelect(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := os.MkdirAll(UserDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(UserDir(), "mine.yaml"), []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := All(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Select(list, []string{"mine/one", "osu/latency", "mine"})
	if err != nil || len(got) != 2 || len(got[0].Experiments) != 1 || len(got[1].Experiments) != 1 {
		t.Errorf("%v %v", got, err)
	}
	for arg, want := range map[string]string{"osv": "did you mean osu?", "osu/latenzy": "did you mean latency?", "q": "there are"} {
		if _, err := Select(list, []string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	list, err := shipped.ReadDir("suites")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range list {
		text, err := shipped.ReadFile("suites/" + s.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("x", text)
		if (s == nil) == (err == nil) {
			t.Fatal("neither a suite nor an error, or both")
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("{a.1} {{ }} {b}", "2x4")
	f.Fuzz(func(t *testing.T, text, value string) {
		Expand(text, map[string]string{"a": value})
		if n, err := Count(value, 4); err == nil && n < 1 {
			t.Errorf("%q counts %d", value, n)
		}
	})
}

// TestLike: an experiment inherits missing values from the earlier one that it is like.
func TestLike(t *testing.T) {
	const text = `version: 1
suite: t
experiments:
  - name: a
    title: A
    seed: 004 fig 8
    programs: [{name: p, find: [sh]}]
    command: ["{program}", "{n}"]
    sweep: {n: [1, 2]}
    output: [{metric: m, unit: s, better: down, wall: true}]
  - {name: b, like: a, command: ["{program}"], sweep: {}}
  - {name: c, like: LIKE}
`
	s, err := Parse("t.yaml", []byte(strings.Replace(text, "LIKE", "a", 1)))
	if err != nil {
		t.Fatal(err)
	}
	b, c := s.Experiments[1], s.Experiments[2]
	if b.Title != "b" || b.Seed != "" || len(b.Sweep) != 0 || len(b.Programs[0].Command) != 1 || len(b.Programs[0].Output) != 1 {
		t.Errorf("%+v", b)
	}
	if len(c.Sweep) != 1 || len(c.Programs[0].Command) != 2 {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"c", "nobody"} {
		if _, err := Parse("t.yaml", []byte(strings.Replace(text, "LIKE", name, 1))); err == nil || !strings.Contains(err.Error(), "not an earlier experiment") {
			t.Errorf("like %s: %v", name, err)
		}
	}
}
