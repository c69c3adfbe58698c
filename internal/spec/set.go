package spec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Set sets the key at a path to the value of text in the notation of a file, for flags: region.size, or vms[].memory
// for every group (one is made if there is none). The error describes the fault of the text. An empty text is an
// error.
func Set(c *Cluster, key, text string) error {
	f := FieldAt(key)
	if f == nil || !f.Type.Scalar() {
		return fmt.Errorf("the cluster file has no single value %s", key)
	}
	if text == "" {
		return errors.New("is empty")
	}
	return set(reflect.ValueOf(c).Elem(), Schema(), key, text)
}

func set(v reflect.Value, t *Type, key, text string) error {
	part, rest, deeper := strings.Cut(key, ".")
	name, list := strings.CutSuffix(part, "[]")
	f := t.field(name)
	v = v.Field(f.index)
	switch {
	case list:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := 0; i < v.Len(); i++ {
			if err := set(v.Index(i), f.Type.Elem, rest, text); err != nil {
				return err
			}
		}
		return nil
	case f.Type.Pointer:
		if v.IsNil() || !deeper {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if deeper {
		return set(v, f.Type, rest, text)
	}
	message := setText(v, f.Type, text)
	if message == "" {
		message = f.check(f.Type, v)
	}
	if message != "" {
		return errors.New(message)
	}
	return nil
}
