package start

import (
	"encoding/json"
	"reflect"
	"testing"

	"nearmetal/internal/plan"
)

// Checks that each field of a Request survives JSON: a field that JSON leaves out would be lost silently.
func TestRequestArrives(t *testing.T) {
	var sent, got Request
	fill(t, reflect.ValueOf(&sent).Elem(), "Request", 0)
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeOf(sent).NumField() {
		name := reflect.TypeOf(sent).Field(i).Name
		a, b := reflect.ValueOf(sent).Field(i), reflect.ValueOf(got).Field(i)
		if a.IsZero() {
			t.Errorf("%s: the test sends nothing", name)
		}
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			t.Errorf("%s: sent %+v, got %+v", name, a.Interface(), b.Interface())
		}
	}
}

// fill sets v and its parts, down to some depth, to values that are not zero.
func fill(t *testing.T, v reflect.Value, name string, depth int) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), name, depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), name, depth)
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), name, depth)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, name, depth)
		fill(t, value, name, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if of := v.Type(); depth > 0 && of.PkgPath() != "nearmetal/internal/cluster/wiring" && of != reflect.TypeOf(plan.Ledger{}) {
			return // the parts of a cluster file and of a plan have tests of their own
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), name+"."+v.Type().Field(i).Name, depth+1)
			}
		}
	default:
		t.Fatalf("%s: a test does not know kind %v", name, v.Kind())
	}
}
