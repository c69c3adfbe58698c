package spec

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/text"
)

// setScalar decodes the scalar n into v, a value of type t, and returns the fault or "". literal accepts a number or
// a truth value as a text.
func setScalar(v reflect.Value, t *Type, n *yaml.Node, literal bool) string {
	tag := n.ShortTag()
	isText := tag == "!!str"
	switch t.Kind {
	case String:
		if !isText && !literal {
			return fmt.Sprintf("is the %s %s but must be text: write %q", tagName(tag), text.Quote(n.Value), n.Value)
		}
	case Bool:
		if tag != "!!bool" {
			return text.Quote(n.Value) + " is neither true nor false"
		}
	case Int:
		if tag != "!!int" {
			return text.Quote(n.Value) + " is not a whole number"
		}
	case Float:
		if tag != "!!int" && tag != "!!float" {
			return text.Quote(n.Value) + " is not a number"
		}
	}
	return setText(v, t, n.Value)
}

func tagName(tag string) string {
	switch tag {
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "truth value"
	case "!!timestamp":
		return "date"
	}
	return "value"
}

// setText sets v, a scalar of type t, from the text of a file, a flag or a tag, and returns the fault or "".
func setText(v reflect.Value, t *Type, s string) string {
	switch t.Kind {
	case String:
		v.SetString(s)
	case Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return text.Quote(s) + " is neither true nor false"
		}
		v.SetBool(b)
	case Int:
		digits := strings.TrimPrefix(s, "+")
		if v.CanUint() {
			n, err := strconv.ParseUint(digits, 10, v.Type().Bits())
			if err != nil {
				return wholeNumber(s)
			}
			v.SetUint(n)
			return ""
		}
		n, err := strconv.ParseInt(digits, 10, v.Type().Bits())
		if err != nil {
			return wholeNumber(s)
		}
		v.SetInt(n)
	case Float:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || n != n || n-n != 0 { // NaN and the infinities are not valid settings
			return text.Quote(s) + " is not a number"
		}
		v.SetFloat(n)
	case Bytes, Text:
		if message := noUnit(s); t.Kind == Bytes && message != "" {
			return message
		}
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			return err.Error()
		}
	}
	return ""
}

func wholeNumber(s string) string {
	if strings.Trim(s, "+-0123456789") == "" {
		return text.Quote(s) + " is out of range"
	}
	return text.Quote(s) + " is not a whole number: write it in decimal digits only"
}

// written returns the scalar v as it is written in a file.
func written(v reflect.Value, t *Type) string {
	if t.Kind == Text || t.Kind == Bytes {
		s, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return ""
		}
		return string(s)
	}
	return fmt.Sprint(v.Interface())
}

// check compares a scalar v of type t with the rules of its field f, and returns the fault or "".
func (f *Field) check(t *Type, v reflect.Value) string {
	if f.Enum != nil && !slices.Contains(f.Enum, written(v, t)) {
		return f.notOneOf(written(v, t))
	}
	switch t.Kind {
	case String:
		s := v.String()
		if strings.ContainsRune(s, 0) {
			return text.Quote(s) + " has a NUL character"
		}
		if f.Required && s == "" {
			return "is empty"
		}
	case Int, Float, Bytes:
		if message := f.checkRange(t, v); message != "" {
			return message
		}
	}
	// The format of a map applies to its names, and not to its values.
	if s := written(v, t); f.Format != "" && s != "" && f.Type.Kind != Map {
		return formats[f.Format](s)
	}
	return ""
}

func (f *Field) notOneOf(s string) string {
	var words []string
	for _, word := range f.Enum {
		if word != "" {
			words = append(words, word)
		}
	}
	message := text.Quote(s) + " is not one of " + strings.Join(words, ", ")
	if len(words) == 1 {
		message = text.Quote(s) + " is not " + words[0]
	}
	if near := Nearest(s, words); near != "" && len(words) > 1 {
		message += ": did you mean " + near + "?"
	}
	return message
}

// checkRange compares a number with min and max.
func (f *Field) checkRange(t *Type, v reflect.Value) string {
	bound := func(s string) reflect.Value {
		b := reflect.New(v.Type()).Elem()
		if message := setText(b, t, s); message != "" {
			panic("spec: bound of " + f.GoName + ": " + message) // a mistake in types.go
		}
		return b
	}
	low := f.Min != "" && less(v, bound(f.Min))
	high := f.Max != "" && less(bound(f.Max), v)
	if !low && !high {
		return ""
	}
	switch {
	case f.Min != "" && f.Max != "":
		return fmt.Sprintf("%s is not between %s and %s", written(v, t), f.Min, f.Max)
	case low:
		return fmt.Sprintf("%s is less than %s", written(v, t), f.Min)
	}
	return fmt.Sprintf("%s is more than %s", written(v, t), f.Max)
}

func less(a, b reflect.Value) bool {
	switch {
	case a.CanInt():
		return a.Int() < b.Int()
	case a.CanUint():
		return a.Uint() < b.Uint()
	}
	return a.Float() < b.Float()
}

// checkMapKey returns the fault of a name in a map, or "".
func (f *Field) checkMapKey(name string) string {
	if f.Format == "" {
		return ""
	}
	if name == "" {
		return "a name is empty"
	}
	return formats[f.Format](name)
}
