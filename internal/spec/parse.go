package spec

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/text"
)

// Bounds of a cluster file, so that an untrusted one costs little.
const (
	MaxFile  = 1 << 20 // bytes
	maxItems = 4096    // in a list or map
)

// Load reads the cluster file at path: see Parse. The file may be a pipe (/dev/stdin); errors use path as its name.
func Load(path string) (*Cluster, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster file: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read is Load for an open file: name is used in errors. It reads at most 1 MiB.
func Read(name string, r io.Reader) (*Cluster, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster file: %w", err)
	}
	return Parse(name, data)
}

// Parse parses a cluster file's text and checks it; name is used in errors. Missing values stay zero: Defaults fills
// them in, after the flags were applied. The error is a *Problems that lists all mistakes at once, each with its line
// and column.
func Parse(name string, data []byte) (*Cluster, error) {
	r := &reader{file: name, places: map[string]place{}}
	c := &Cluster{}
	if document := r.document(data); document != nil {
		r.value(document, Schema(), nil, reflect.ValueOf(c).Elem(), "")
	}
	countNames(c)
	if len(r.problems.List) == 0 {
		for _, p := range conflicts(c) {
			at := r.placeOf(p.Key)
			p.File, p.Line, p.Column = name, at.line, at.column
			r.problems.add(p)
		}
	}
	if len(r.problems.List) > 0 {
		sort.SliceStable(r.problems.List, func(i, j int) bool {
			a, b := r.problems.List[i], r.problems.List[j]
			return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
		})
		return nil, &r.problems
	}
	return c, nil
}

// place is the position of a value in the file, from 1.
type place struct{ line, column int }

// reader decodes YAML nodes into Go values along the schema.
type reader struct {
	file     string
	problems Problems
	places   map[string]place // of each value, by its key's path
}

func (r *reader) fail(n *yaml.Node, key, format string, args ...any) {
	r.problems.add(Problem{File: r.file, Line: n.Line, Column: n.Column, Key: key, Message: fmt.Sprintf(format, args...)})
}

// placeOf returns the place of the value at a key's path, or of the nearest one around it.
func (r *reader) placeOf(key string) place {
	for key != "" {
		if at, ok := r.places[key]; ok {
			return at
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return place{1, 1}
}

// document returns the one YAML document in data, nil if it is empty or wrong.
func (r *reader) document(data []byte) *yaml.Node {
	if len(data) > MaxFile {
		r.problems.add(Problem{File: r.file, Message: "is larger than 1MiB, which no cluster file needs to be"})
		return nil
	}
	first, second, err := documents(data)
	switch {
	case err != nil:
		r.syntax(data, err)
		return nil
	case first == nil:
		return nil
	case second != nil:
		r.fail(second, "", "a second document begins here: a cluster file has one")
		return nil
	}
	if len(first.Content) != 1 {
		return nil
	}
	root := first.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" && root.Value == "" {
		return nil // comments only
	}
	return root
}

// value decodes n into v, a value of type t. f is the field it belongs to (for its rules; nil at the top) and key its
// path.
func (r *reader) value(n *yaml.Node, t *Type, f *Field, v reflect.Value, key string) {
	r.places[key] = place{n.Line, n.Column}
	switch {
	case n.Kind == yaml.AliasNode:
		r.fail(n, key, "aliases (*%s) are not allowed here: write the value out", clip(n.Value))
		return
	case n.Anchor != "":
		r.fail(n, key, "anchors (&%s) are not allowed here: write each value out", clip(n.Anchor))
		return
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, key, "tags (%s) are not allowed here", clip(n.Tag))
		return
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		r.fail(n, key, "has no value: give it one, or remove the key for the default")
		return
	}
	if t.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case t.Kind == Object && n.Kind == yaml.MappingNode:
		r.object(n, t, v, key)
	case t.Kind == Object && n.Kind == yaml.ScalarNode && f != nil && f.Short != "" && f.Type == t:
		word := t.field(f.Short)
		r.value(n, word.Type, word, v.Field(word.index), join(key, f.Short))
	case t.Kind == List && n.Kind == yaml.SequenceNode:
		r.list(n, t, f, v, key)
	case t.Kind == Map && n.Kind == yaml.MappingNode:
		r.mapping(n, t, f, v, key)
	case t.Scalar() && n.Kind == yaml.ScalarNode:
		// The items of a list or map of texts may look like numbers: OMP_NUM_THREADS: 4.
		literal := f.Type.Kind == List || f.Type.Kind == Map
		message := setScalar(v, t, n, literal)
		if message == "" {
			message = f.check(t, v)
		}
		if message != "" {
			r.fail(n, key, "%s", message)
		}
	default:
		r.fail(n, key, "%s", mismatch(n, t, key))
	}
}

// mismatch returns the message for n if it is not a value of type t.
func mismatch(n *yaml.Node, t *Type, key string) string {
	is := map[yaml.Kind]string{yaml.MappingNode: "keys with values", yaml.SequenceNode: "a list", yaml.ScalarNode: text.Quote(n.Value)}[n.Kind]
	wants := "a " + string(t.Kind)
	switch {
	case key == "":
		return fmt.Sprintf("a cluster file has keys such as vms: on its lines, not %s", is)
	case t.Kind == List && t.Elem.Scalar():
		wants = "a list, such as [" + clip(n.Value) + "]"
	case t.Kind == List && n.Kind == yaml.MappingNode:
		wants = "a list: put a hyphen before the first key of each item"
	case t.Kind == List && t.Elem.Kind == Object:
		keys := t.Elem.keys()
		wants = "a list of items with keys such as " + strings.Join(keys[:min(3, len(keys))], ", ")
	case t.Kind == Map:
		wants = "names with values, each NAME: VALUE on its line"
	case t.Kind == Object:
		wants = "keys of its own: " + strings.Join(t.keys(), ", ")
	}
	return fmt.Sprintf("is %s but must be %s", is, wants)
}

func (r *reader) object(n *yaml.Node, t *Type, v reflect.Value, key string) {
	seen := map[string]int{}
	told := false // the existing keys were listed
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name, ok := r.key(k, key, seen)
		if !ok {
			continue
		}
		f := t.field(name)
		if f == nil {
			r.fail(k, key, "%s", unknownKey(name, t, !told))
			told = true
			continue
		}
		r.value(value, f.Type, f, v.Field(f.index), join(key, name))
	}
	for _, f := range t.Fields {
		if _, ok := seen[f.Key]; f.Required && !ok {
			r.fail(n, key, "the key %s is missing", f.Key)
		}
	}
}

func (r *reader) list(n *yaml.Node, t *Type, f *Field, v reflect.Value, key string) {
	if len(n.Content) > maxItems {
		r.fail(n, key, "has %d items, more than %d", len(n.Content), maxItems)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		r.value(item, t.Elem, f, v.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
}

func (r *reader) mapping(n *yaml.Node, t *Type, f *Field, v reflect.Value, key string) {
	if len(n.Content)/2 > maxItems {
		r.fail(n, key, "has %d items, more than %d", len(n.Content)/2, maxItems)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name, ok := r.key(k, key, seen)
		if !ok {
			continue
		}
		if message := f.checkMapKey(name); message != "" {
			r.fail(k, key, "%s", message)
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		r.value(value, t.Elem, f, elem, join(key, name))
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), elem)
	}
}

// key returns the text of a key, which must be new in seen. parent is the path of the object that contains it.
func (r *reader) key(k *yaml.Node, parent string, seen map[string]int) (string, bool) {
	switch {
	case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
		r.fail(k, parent, "merge keys (<<) are not allowed here: write the keys out")
		return "", false
	case k.Kind != yaml.ScalarNode || k.Anchor != "" || k.Style&yaml.TaggedStyle != 0:
		r.fail(k, parent, "a key must be a plain word")
		return "", false
	}
	if line, ok := seen[k.Value]; ok {
		r.fail(k, parent, "the key %s stands in line %d already", clip(k.Value), line)
		return "", false
	}
	seen[k.Value] = k.Line
	return k.Value, true
}

// unknownKey returns the message that name is not a key of the object t, with a suggestion: another key of it, or a
// key of another object; or, if list is set, the existing keys.
func unknownKey(name string, t *Type, list bool) string {
	message := "unknown key " + clip(name)
	if near := Nearest(name, t.keys()); near != "" {
		return message + ": did you mean " + near + "?"
	}
	if home, ok := homeOf(name, Schema(), ""); ok {
		if home == "" {
			return message + " here: it belongs to the top of the file, not indented"
		}
		return message + " here: it belongs to " + home
	}
	if list {
		message += ": the keys here are " + strings.Join(t.keys(), ", ")
	}
	return message
}

// homeOf finds the object that has a key with that name; at is the path of t.
func homeOf(name string, t *Type, at string) (home string, ok bool) {
	switch t.Kind {
	case List:
		return homeOf(name, t.Elem, at+"[]")
	case Object:
		if t.field(name) != nil {
			return at, true
		}
		for _, f := range t.Fields {
			if home, ok := homeOf(name, f.Type, join(at, f.Key)); ok {
				return home, true
			}
		}
	}
	return "", false
}

func join(parent, key string) string {
	if parent == "" {
		return clip(key)
	}
	return parent + "." + clip(key)
}

// clip formats a word of the file for a message, without quotes if it is plain.
func clip(s string) string {
	if len(s) <= 40 && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) && s != "" {
		return s
	}
	return text.Quote(s)
}
