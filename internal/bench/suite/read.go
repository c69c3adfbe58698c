package suite

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// Bounds of a suite file, so that an untrusted one costs little.
const (
	maxFile  = 1 << 20 // bytes
	maxItems = 1024    // in a list or map
	maxTold  = 20      // reported mistakes
)

// Load reads the suite file at path.
func Load(path string) (*Suite, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the suite: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("cannot read the suite: %s is not a plain file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the suite: %w", err)
	}
	s, err := Parse(path, text)
	if s != nil {
		s.File = path
	}
	return s, err
}

// Parse parses a suite file's text, fills in the defaults and checks it; name is used in errors. The error is a
// *spec.Problems: each mistake with its line and column.
func Parse(name string, text []byte) (*Suite, error) {
	r := &reader{file: name, places: map[string][2]int{}}
	s := &Suite{}
	if n := r.document(text); n != nil {
		r.value(n, reflect.ValueOf(s).Elem(), "")
		if len(r.problems.List) == 0 {
			r.check(s)
		}
	}
	if len(r.problems.List) > 0 {
		return nil, &r.problems
	}
	return s, nil
}

// reader decodes YAML nodes into the types of this package.
type reader struct {
	file     string
	problems spec.Problems
	places   map[string][2]int // line and column of each value, by its key
}

func (r *reader) fail(n *yaml.Node, key, format string, args ...any) {
	r.failAt(n.Line, n.Column, key, format, args...)
}

func (r *reader) failAt(line, column int, key, format string, args ...any) {
	if len(r.problems.List) >= maxTold {
		r.problems.More++
		return
	}
	r.problems.List = append(r.problems.List, spec.Problem{File: r.file, Line: line, Column: column, Key: key, Message: fmt.Sprintf(format, args...)})
}

// failKey reports a mistake at a key, or at the nearest one around it.
func (r *reader) failKey(key, format string, args ...any) {
	at := [2]int{1, 1}
	for k := key; k != ""; k = k[:max(0, strings.LastIndexAny(k, ".["))] {
		if p, ok := r.places[k]; ok {
			at = p
			break
		}
	}
	r.failAt(at[0], at[1], key, format, args...)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) document(text []byte) (root *yaml.Node) {
	defer func() {
		if recover() != nil { // the library has panicked on malformed text before
			root = nil
			r.failAt(1, 1, "", "is not YAML that can be read")
		}
	}()
	if len(text) > maxFile {
		r.failAt(1, 1, "", "is larger than 1 MiB, which no suite needs to be")
		return nil
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var n, second yaml.Node
	if err := d.Decode(&n); err == io.EOF {
		r.failAt(1, 1, "", "is empty: a suite begins with version: 1 (see docs/suite.md)")
		return nil
	} else if err != nil {
		line := 1
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			line, _ = strconv.Atoi(m[1])
		}
		r.failAt(line, 1, "", "is not YAML: %s", yamlLine.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", " "), ""))
		return nil
	}
	if d.Decode(&second) == nil {
		r.fail(&second, "", "a second document begins here: a suite has one")
		return nil
	}
	if len(n.Content) != 1 || n.Content[0].Kind != yaml.MappingNode {
		r.failAt(1, 1, "", "a suite has keys such as version: and suite: on its lines")
		return nil
	}
	return n.Content[0]
}

var (
	durationType   = reflect.TypeOf(time.Duration(0))
	parameterList  = reflect.TypeOf([]Parameter(nil))
	kindNames      = map[yaml.Kind]string{yaml.MappingNode: "keys with values", yaml.SequenceNode: "a list", yaml.ScalarNode: "one value"}
	variableNames  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	parameterNames = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
)

// value decodes n into v; key is its path.
func (r *reader) value(n *yaml.Node, v reflect.Value, key string) {
	r.places[key] = [2]int{n.Line, n.Column}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0:
		r.fail(n, key, "anchors, aliases and tags are not allowed here: write the value out")
		return
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		r.fail(n, key, "has no value: give it one, or remove the key")
		return
	}
	switch {
	case v.Type() == parameterList:
		r.parameters(n, v, key)
		return
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.value(n, v.Elem(), key)
		return
	case v.Kind() == reflect.Struct:
		r.object(n, v, key)
		return
	case v.Kind() == reflect.Slice:
		r.list(n, v, key)
		return
	case v.Kind() == reflect.Map:
		r.mapping(n, v, key)
		return
	case n.Kind != yaml.ScalarNode:
		r.fail(n, key, "is %s but must be one value", kindNames[n.Kind])
		return
	}
	r.scalar(n, v, key)
}

func (r *reader) scalar(n *yaml.Node, v reflect.Value, key string) {
	switch s := n.Value; {
	case strings.ContainsRune(s, 0):
		r.fail(n, key, "has a NUL character")
	case v.Type() == durationType:
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			r.fail(n, key, "%s is not a time: write a number with s, m or h, such as 90s", text.Quote(s))
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(s)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			r.fail(n, key, "%s is neither true nor false", text.Quote(s))
		}
		v.SetBool(b)
	case v.Kind() == reflect.Int:
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 || i > 1_000_000 {
			r.fail(n, key, "%s is not a whole number from 0 to 1000000", text.Quote(s))
		}
		v.SetInt(int64(i))
	case v.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f-f != 0 {
			r.fail(n, key, "%s is not a number", text.Quote(s))
		}
		v.SetFloat(f)
	}
}

func (r *reader) object(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, key, "is %s but must be keys with values", kindNames[n.Kind])
		return
	}
	fields := map[string]int{}
	var names []string
	for i := 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "-" {
			fields[name] = i
			names = append(names, name)
		}
	}
	r.keys(n, key, func(k, value *yaml.Node) {
		i, ok := fields[k.Value]
		if !ok {
			message := "the keys here are " + strings.Join(names, ", ")
			if near := spec.Nearest(k.Value, names); near != "" {
				message = "did you mean " + near + "?"
			}
			r.fail(k, key, "unknown key %s: %s", text.Quote(k.Value), message)
			return
		}
		r.value(value, v.Field(i), join(key, k.Value))
	})
}

// keys calls f for each key of a mapping with its value.
func (r *reader) keys(n *yaml.Node, key string, f func(k, value *yaml.Node)) {
	if len(n.Content)/2 > maxItems {
		r.fail(n, key, "has more than %d keys", maxItems)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch line, again := seen[k.Value]; {
		case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" || k.Anchor != "":
			r.fail(k, key, "a key must be a plain word")
		case again:
			r.fail(k, key, "the key %s stands in line %d already", text.Quote(k.Value), line)
		default:
			seen[k.Value] = k.Line
			f(k, n.Content[i+1])
		}
	}
}

// list decodes a list; a single value represents a list of it.
func (r *reader) list(n *yaml.Node, v reflect.Value, key string) {
	items := []*yaml.Node{n}
	switch {
	case n.Kind == yaml.SequenceNode:
		items = n.Content
	case n.Kind != yaml.ScalarNode || v.Type().Elem().Kind() != reflect.String:
		r.fail(n, key, "is %s but must be a list", kindNames[n.Kind])
		return
	}
	if len(items) > maxItems {
		r.fail(n, key, "has more than %d items", maxItems)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		r.value(item, v.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
}

func (r *reader) mapping(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, key, "is %s but must be names with values", kindNames[n.Kind])
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	r.keys(n, key, func(k, value *yaml.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		r.value(value, elem, join(key, k.Value))
		v.SetMapIndex(reflect.ValueOf(k.Value), elem)
	})
}

// parameters decodes NAME: VALUE, NAME: [VALUES] or NAME: {values: …, quick: …} in their order.
func (r *reader) parameters(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, key, "is %s but must be names with values", kindNames[n.Kind])
		return
	}
	out := []Parameter{} // not nil: with like, {} means that there are none
	r.keys(n, key, func(k, value *yaml.Node) {
		p := Parameter{Name: k.Value}
		at := join(key, k.Value)
		if value.Kind == yaml.MappingNode {
			r.value(value, reflect.ValueOf(&p).Elem(), at)
		} else {
			r.value(value, reflect.ValueOf(&p.Values).Elem(), at)
		}
		out = append(out, p)
	})
	v.Set(reflect.ValueOf(out))
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
