package spec

import (
	"bytes"
	"reflect"
	"sort"
	"strconv"

	"gopkg.in/yaml.v3"
)

// YAML returns c as a cluster file that Parse parses to the same value. Unset pointers, lists and maps are omitted.
func (c Cluster) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(nodeOf(reflect.ValueOf(c), Schema())); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// nodeOf returns v, a value of type t, as YAML; nil: it is unset.
func nodeOf(v reflect.Value, t *Type) *yaml.Node {
	if t.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch t.Kind {
	case Object:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range t.Fields {
			if value := nodeOf(v.Field(f.index), f.Type); value != nil {
				n.Content = append(n.Content, word(f.Key), value)
			}
		}
		return n
	case List:
		if v.IsNil() {
			return nil
		}
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if t.Elem.Scalar() || v.Len() == 0 {
			n.Style = yaml.FlowStyle
		}
		for i := 0; i < v.Len(); i++ {
			if item := nodeOf(v.Index(i), t.Elem); item != nil {
				n.Content = append(n.Content, item)
			}
		}
		return n
	case Map:
		if v.IsNil() {
			return nil
		}
		n := &yaml.Node{Kind: yaml.MappingNode}
		names := v.MapKeys()
		sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
		for _, name := range names {
			if value := nodeOf(v.MapIndex(name), t.Elem); value != nil {
				n.Content = append(n.Content, word(name.String()), value)
			}
		}
		return n
	case String:
		return word(v.String())
	case Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(v.Bool())}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: written(v, t)}
}

// word returns a text, which is quoted if it would be parsed as something else.
func word(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}
