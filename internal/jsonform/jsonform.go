// Package jsonform describes JSON that commands print: a schema of a Go type, whether a value matches it, and the
// promises of an older schema that a newer one does not keep.
package jsonform

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"
)

// Schema is a JSON schema (2020-12) as far as it is needed here. The zero value accepts anything.
type Schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Type        string             `json:"type,omitempty"`
	Nullable    bool               `json:"nullable,omitempty"` // null is also accepted
	Items       *Schema            `json:"items,omitempty"`
	Values      *Schema            `json:"additionalProperties,omitempty"` // of an object with arbitrary keys
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Description string             `json:"description,omitempty"`
	Open        bool               `json:"x-open,omitempty"` // it has additional fields, which it marshals itself
}

var (
	marshaler = reflect.TypeFor[json.Marshaler]()
	texter    = reflect.TypeFor[encoding.TextMarshaler]()
	moment    = reflect.TypeFor[time.Time]()
)

// Of returns the schema of encoding/json's output for values of t. A type that marshals itself is described by its
// fields if it has some, else anything is accepted. Anything is also accepted for a recursive type.
func Of(t reflect.Type) *Schema { return of(t, nil) }

func of(t reflect.Type, within []reflect.Type) *Schema {
	if t.Kind() == reflect.Pointer {
		s := of(t.Elem(), within)
		s.Nullable = true
		return s
	}
	for _, w := range within {
		if w == t {
			return &Schema{}
		}
	}
	within = append(within, t)
	self := t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
	switch {
	case t == moment || t.Implements(texter):
		return &Schema{Type: "string"}
	case self && t.Kind() != reflect.Struct:
		return &Schema{}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{Type: "integer"}
	case reflect.Slice, reflect.Array:
		return &Schema{Type: "array", Items: of(t.Elem(), within), Nullable: t.Kind() == reflect.Slice}
	case reflect.Map:
		return &Schema{Type: "object", Values: of(t.Elem(), within), Nullable: true}
	case reflect.Struct:
		s := &Schema{Type: "object", Properties: map[string]*Schema{}}
		s.Open = self
		s.fields(t, within)
		sort.Strings(s.Required)
		return s
	}
	return &Schema{}
}

// fields adds the fields of a struct, including those of embedded ones.
func (s *Schema) fields(t reflect.Type, within []reflect.Type) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-":
		case f.Tag.Get("jsonform") != "": // it is deprecated, and not promised
			s.Open = true
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			s.fields(embedded, within)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			s.Properties[name] = of(f.Type, within)
			if !strings.Contains(options, "omitempty") {
				s.Required = append(s.Required, name)
			}
		}
	}
}

// Broken returns the promises of s that newer does not keep, one line each; none: programs that read s can also read
// newer.
func (s *Schema) Broken(newer *Schema) []string { return s.broken(newer, "") }

func (s *Schema) broken(newer *Schema, at string) (list []string) {
	if at == "" {
		at = "."
	}
	switch {
	case s.Type == "":
		return nil
	case newer == nil:
		return []string{at + " is gone"}
	case newer.Type != s.Type:
		return []string{fmt.Sprintf("%s was of type %s and is %q", at, s.Type, newer.Type)}
	case newer.Nullable && !s.Nullable:
		list = append(list, at+" may be null")
	}
	if s.Items != nil {
		list = append(list, s.Items.broken(newer.Items, at+"[]")...)
	}
	if s.Values != nil {
		list = append(list, s.Values.broken(newer.Values, at+"{}")...)
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		list = append(list, s.Properties[name].broken(newer.Properties[name], strings.TrimSuffix(at, ".")+"."+name)...)
	}
	for _, name := range s.Required {
		if p := newer.Properties[name]; p != nil && !slices.Contains(newer.Required, name) {
			list = append(list, strings.TrimSuffix(at, ".")+"."+name+" may be left out")
		}
	}
	return list
}

// Check returns an error if a value that encoding/json has decoded does not match s: a wrong type, a missing field,
// or an unknown field (unless s describes a type that marshals itself).
func (s *Schema) Check(v any) error { return s.check(v, "") }

func (s *Schema) check(v any, at string) error {
	wrong := func() error { return fmt.Errorf("%s is %T and not of type %s", at+".", v, s.Type) }
	if s.Type == "" || v == nil && s.Nullable {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			return wrong()
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return fmt.Errorf("%s.%s is missing", at, name)
			}
		}
		for name, value := range v {
			below := s.Properties[name]
			if below == nil {
				below = s.Values
			}
			if below == nil && s.Open {
				continue
			}
			if below == nil {
				return fmt.Errorf("%s.%s is not known", at, name)
			}
			if err := below.check(value, at+"."+name); err != nil {
				return err
			}
		}
	case []any:
		if s.Type != "array" {
			return wrong()
		}
		for i, value := range v {
			if err := s.Items.check(value, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case string:
		if s.Type != "string" {
			return wrong()
		}
	case bool:
		if s.Type != "boolean" {
			return wrong()
		}
	case float64:
		if s.Type != "number" && (s.Type != "integer" || v != float64(int64(v))) {
			return wrong()
		}
	default:
		return wrong()
	}
	return nil
}
