package spec

import "reflect"

// Defaults fills in the default of every key that is zero in c, and one group of one VM if there is none. It does not
// change shares: the default share depends on the working directory, see DefaultShare.
func Defaults(c *Cluster) {
	if len(c.VMs) == 0 {
		c.VMs = make([]Group, 1)
	}
	countNames(c)
	fill(reflect.ValueOf(c).Elem(), Schema(), nil)
}

func fill(v reflect.Value, t *Type, f *Field) {
	switch {
	case t.Pointer && v.IsNil():
		if f == nil || f.Default == "" {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fallthrough
	case t.Pointer:
		inner := *t
		inner.Pointer = false
		fill(v.Elem(), &inner, f)
	case t.Kind == Object:
		for i := range t.Fields {
			f := &t.Fields[i]
			fill(v.Field(f.index), f.Type, f)
		}
	case t.Kind == List && t.Elem.Kind == Object:
		for i := 0; i < v.Len(); i++ {
			fill(v.Index(i), t.Elem, nil)
		}
	case t.Scalar() && f != nil && f.Default != "" && v.IsZero():
		if message := setText(v, t, f.Default); message != "" {
			panic("spec: default of " + f.GoName + ": " + message) // a mistake in types.go
		}
	}
}

// Clone returns a copy of c that shares nothing with it.
func (c *Cluster) Clone() *Cluster {
	out := *c
	duplicate(reflect.ValueOf(&out).Elem())
	return &out
}

// duplicate replaces the pointers, lists and maps in v by copies.
func duplicate(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(v.Elem())
			duplicate(p.Elem())
			v.Set(p)
		}
	case reflect.Slice:
		if !v.IsNil() {
			s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(s, v)
			for i := 0; i < s.Len(); i++ {
				duplicate(s.Index(i))
			}
			v.Set(s)
		}
	case reflect.Map:
		if !v.IsNil() {
			m := reflect.MakeMapWithSize(v.Type(), v.Len())
			for _, k := range v.MapKeys() {
				elem := reflect.New(v.Type().Elem()).Elem()
				elem.Set(v.MapIndex(k))
				duplicate(elem)
				m.SetMapIndex(k, elem)
			}
			v.Set(m)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			if v.Type().Field(i).IsExported() {
				duplicate(v.Field(i))
			}
		}
	}
}
