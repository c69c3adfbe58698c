package spec

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// The types of types.go and placement.go are the schema. A field's tags state the rest:
//
//	yaml     the key
//	default  the value of a missing key, as in a file
//	enum     the allowed values, with commas; an empty one allows ""
//	min, max the bounds of a number or Size, as in a file
//	format   a rule of formats (format.go) for each string in the value
//	required "true": the key must be there
//	short    the key that a plain word instead of the object sets
//
// A field may be a bool, an int or uint of any width, a float, a string, a Size,
// another type that marshals itself as text, a struct, a pointer to one
// of these (nil: unset), a list of them or a map of them with string keys.

// Kind is the kind of a value in the cluster file.
type Kind string

// The kinds of values.
const (
	Bool   Kind = "true or false"
	Int    Kind = "whole number"
	Float  Kind = "number"
	String Kind = "text"
	Bytes  Kind = "size"
	Text   Kind = "word" // a type that parses itself: encoding.TextUnmarshaler
	List   Kind = "list"
	Map    Kind = "map"
	Object Kind = "object"
)

// Type is the shape of a value in the cluster file.
type Type struct {
	Kind    Kind
	Elem    *Type   // of the values of a List or Map
	Fields  []Field // of an Object
	Name    string  // Go's name of an Object's type
	Pointer bool    // nil means unset
}

// Field is one key of an Object.
type Field struct {
	Key      string
	GoName   string
	Type     *Type
	Default  string // "" for none
	Enum     []string
	Min, Max string // "" for no bound
	Format   string // a key of formats, "" for none
	Required bool
	Short    string // of an Object: the key that a plain word sets; "": none

	index int
}

// Scalar reports whether values of the type are written on one line.
func (t *Type) Scalar() bool { return t.Kind != List && t.Kind != Map && t.Kind != Object }

// field returns the field of an Object with the given key, or nil.
func (t *Type) field(key string) *Field {
	for i := range t.Fields {
		if t.Fields[i].Key == key {
			return &t.Fields[i]
		}
	}
	return nil
}

// keys returns the keys of an Object.
func (t *Type) keys() []string {
	keys := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		keys[i] = f.Key
	}
	return keys
}

// Schema returns the schema of the cluster file, derived from the Go types.
var Schema = sync.OnceValue(func() *Type { return typeOf(reflect.TypeOf(Cluster{})) })

var (
	sizeType        = reflect.TypeOf(Size(0))
	textUnmarshaler = reflect.TypeOf((*encoding.TextUnmarshaler)(nil)).Elem()
	textMarshaler   = reflect.TypeOf((*encoding.TextMarshaler)(nil)).Elem()
)

// typeOf describes a Go type. It panics for one that the cluster file cannot contain: a mistake in types.go, which
// every test of this package detects.
func typeOf(t reflect.Type) *Type {
	switch {
	case t == sizeType:
		return &Type{Kind: Bytes}
	case t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(textUnmarshaler) && t.Implements(textMarshaler):
		return &Type{Kind: Text}
	}
	switch t.Kind() {
	case reflect.Pointer:
		elem := *typeOf(t.Elem())
		elem.Pointer = true
		return &elem
	case reflect.Bool:
		return &Type{Kind: Bool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Type{Kind: Int}
	case reflect.Float32, reflect.Float64:
		return &Type{Kind: Float}
	case reflect.String:
		return &Type{Kind: String}
	case reflect.Slice:
		return &Type{Kind: List, Elem: typeOf(t.Elem())}
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return &Type{Kind: Map, Elem: typeOf(t.Elem())}
		}
	case reflect.Struct:
		object := &Type{Kind: Object, Name: t.Name()}
		for i := 0; i < t.NumField(); i++ {
			if f := fieldOf(t.Field(i)); f != nil {
				f.index = i
				object.Fields = append(object.Fields, *f)
			}
		}
		return object
	}
	panic(fmt.Sprintf("spec: the cluster file cannot hold a %s", t))
}

// fieldOf describes a struct's field; nil: it is not in the file.
func fieldOf(f reflect.StructField) *Field {
	key, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" || !f.IsExported() {
		return nil
	}
	if key == "" || option == "inline" {
		panic(fmt.Sprintf("spec: field %s needs a yaml tag with a key of its own", f.Name))
	}
	field := &Field{
		Key: key, GoName: f.Name, Type: typeOf(f.Type),
		Default: f.Tag.Get("default"), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
		Format: f.Tag.Get("format"), Required: f.Tag.Get("required") == "true",
		Short: f.Tag.Get("short"),
	}
	if enum, ok := f.Tag.Lookup("enum"); ok {
		field.Enum = strings.Split(enum, ",")
	}
	if field.Short != "" && (field.Type.Kind != Object || field.Type.field(field.Short) == nil) {
		panic(fmt.Sprintf("spec: field %s has no key %s for a plain word", f.Name, field.Short))
	}
	if field.Format != "" && formats[field.Format] == nil {
		panic(fmt.Sprintf("spec: field %s has the unknown format %s", f.Name, field.Format))
	}
	return field
}

// FieldAt returns the field at a key's path, such as region.size or vms[].memory,
// or nil.
func FieldAt(key string) *Field {
	t, f := Schema(), (*Field)(nil)
	for _, part := range strings.Split(key, ".") {
		name, list := strings.CutSuffix(part, "[]")
		if t.Kind != Object {
			return nil
		}
		if f = t.field(name); f == nil {
			return nil
		}
		if t = f.Type; list {
			if t.Kind != List {
				return nil
			}
			t = t.Elem
		}
	}
	return f
}
