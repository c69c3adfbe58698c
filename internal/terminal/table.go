package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"nearmetal/internal/text"
)

// Table is rows of text under a heading, in columns as wide as their contents.
type Table struct {
	heading []string
	rows    [][]string
}

// NewTable returns an empty table; the columns' names are shown in capitals.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, c := range columns {
		t.heading = append(t.heading, strings.ToUpper(c))
	}
	return t
}

// Row adds a row; each cell is shown as fmt.Sprint does, an empty one as a hyphen.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(t.heading))
	for i := range row {
		if i < len(cells) {
			row[i] = text.Clean(fmt.Sprint(cells[i]))
		}
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Print writes the table to w.
func (t *Table) Print(w io.Writer) error {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.heading}, t.rows...) {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	columns.Flush()
	_, err := w.Write(out.Bytes())
	return err
}

// PrintJSON writes v to w as indented JSON, the output of a table's --json.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
