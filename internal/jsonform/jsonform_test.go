package jsonform

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Name string   `json:"name"`
	List []string `json:"list,omitempty"`
}

type outer struct {
	inner
	Count int             `json:"count"`
	When  time.Time       `json:"when"`
	Of    *inner          `json:"of,omitempty"`
	Map   map[string]bool `json:"map"`
	Self  []outer         `json:"self,omitempty"`
	Not   string          `json:"-"`
}

type leaving struct {
	Name string `json:"name"`
	Old  string `json:"old" jsonform:"until 0.2.0"`
}

// TestLeaving: a deprecated field is accepted, and not promised.
func TestLeaving(t *testing.T) {
	s := Of(reflect.TypeFor[leaving]())
	if err := s.Check(map[string]any{"name": "a", "old": "b"}); err != nil || s.Properties["old"] != nil || len(s.Required) != 1 {
		t.Errorf("%v, %+v", err, s)
	}
	if err := s.Check(map[string]any{"old": "b"}); err == nil {
		t.Error("name is missing, and nothing was said")
	}
}

func TestOf(t *testing.T) {
	s := Of(reflect.TypeFor[outer]())
	b, err := json.Marshal(outer{inner: inner{Name: "a", List: []string{"x"}}, Of: &inner{}, Map: map[string]bool{"k": true}, Self: []outer{{}}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return s.Check(v)
	}
	if err := check(string(b)); err != nil {
		t.Errorf("%s: %v", b, err)
	}
	for text, want := range map[string]string{
		strings.Replace(string(b), `"count":0`, `"count":0.5`, 1):        ".count",
		strings.Replace(string(b), `"count":0,`, ``, 1):                  ".count is missing",
		strings.Replace(string(b), `{"k":true}`, `{"k":1}`, 1):           ".map.k",
		strings.Replace(string(b), `"count":0`, `"count":0,"more":1`, 1): ".more is not known",
		`[]`: "not of type object",
	} {
		if err := check(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestBroken(t *testing.T) {
	type one struct {
		A int     `json:"a"`
		B []inner `json:"b"`
		C string  `json:"c"`
	}
	type added struct {
		one
		D int `json:"d"`
	}
	type changed struct {
		A string `json:"a"`
		B []struct {
			Name *string `json:"name"`
		} `json:"b"`
		C string `json:"c,omitempty"`
	}
	if got := Of(reflect.TypeFor[one]()).Broken(Of(reflect.TypeFor[added]())); got != nil {
		t.Errorf("a field more breaks %q", got)
	}
	got := strings.Join(Of(reflect.TypeFor[one]()).Broken(Of(reflect.TypeFor[changed]())), "; ")
	if want := `.a was of type integer and is "string"; .b[].list is gone; .b[].name may be null; .c may be left out`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
