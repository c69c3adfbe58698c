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

// Text that is redrawn each second fits the screen, regardless of the screen's size.
func TestScreen(t *testing.T) {
	text := "0123456789\nb\nc\nd\n"
	for _, c := range []struct {
		columns, rows int
		want          string
	}{
		{80, 24, text},
		{80, 0, text}, // unknown
		{80, 5, text},
		{6, 24, "012...\nb\nc\nd\n"},
		{80, 4, "0123456789\nb\n... and 2 lines more\n"},
		{2, 3, "01\n..\n"},
	} {
		if got := fitted(text, c.columns, c.rows); got != c.want {
			t.Errorf("%d columns, %d rows: %q, want %q", c.columns, c.rows, got, c.want)
		}
	}
}
