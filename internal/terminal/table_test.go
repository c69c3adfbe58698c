package terminal

import (
	"bytes"
	"testing"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable("name", "vms", "state")
	table.Row("demo", 2, "ready")
	table.Row("a-longer-name", 16, "")
	table.Row("evil\x1b[2J\nname", nil)
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `NAME           VMS    STATE
demo           2      ready
a-longer-name  16     -
evil?[2J name  <nil>  -
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := PrintJSON(&out, map[string]string{"a": "<b>"}); err != nil || out.String() != "{\n  \"a\": \"<b>\"\n}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
