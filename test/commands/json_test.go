package commands

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"nearmetal/internal/jsonform"
)

// What commands print of running clusters fits its schema.
func TestJSON(t *testing.T) {
	lab(t)
	up(t, "form", 2)
	for _, c := range [][2]string{{"ps", "ps"}, {"ps form", "ps-name"}, {"ps form", "up"}, {"top", "top"}, {"verify form", "verify"}} {
		command, file := c[0], c[1]
		out, errs, _ := answer(t, append(strings.Fields(command), "--json")...)
		text, err := os.ReadFile("../../docs/reference/json/" + file + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		var s jsonform.Schema
		var v any
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%s: %v: %s%s", command, err, out, errs)
		} else if err := s.Check(v); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
