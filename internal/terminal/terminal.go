// Package terminal presents nearmetal's output to people: progress and colours on standard error, tables, and the
// output of several VMs side by side. Standard output belongs to the programs and is never decorated.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Live reports whether lines on w can be redrawn: w is a terminal that is not dumb.
func Live(w io.Writer) bool {
	kind := os.Getenv("TERM")
	return IsTerminal(w) && kind != "dumb" && kind != ""
}

// Coloured reports whether w shows colours and the user has not disabled them (NO_COLOR, see no-color.org).
func Coloured(w io.Writer) bool {
	return Live(w) && os.Getenv("NO_COLOR") == ""
}

// Width returns the columns of the terminal w, or 80 if they are unknown.
func Width(w io.Writer) int { return width(w) }

// Screen returns text that fits on the terminal w: lines are cut at its width, and surplus lines are left out, with a
// last line that counts them.
func Screen(w io.Writer, text string) string {
	columns, rows := width(w), 0
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		_, rows, _ = term.GetSize(int(f.Fd()))
	}
	return fitted(text, columns, rows)
}

// fitted is Screen with the columns and rows of the terminal; 0 rows: unknown.
func fitted(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	// The last row stays free for the cursor.
	if most := rows - 1; rows > 2 && len(lines) > most {
		left := len(lines) - (most - 1)
		lines = append(lines[:most-1], fmt.Sprintf("... and %d lines more", left))
	}
	for i := range lines {
		lines[i] = cut(lines[i], columns)
	}
	return strings.Join(lines, "\n") + "\n"
}

// width returns the columns of the terminal w, or 80 if they are unknown.
func width(w io.Writer) int {
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// Colour is a style of text on a terminal: the digits of a select-graphic-rendition sequence.
type Colour string

// The colours in use. Those of VMs are distinguishable on dark and on light backgrounds.
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

var vmColours = []Colour{"36", "33", "35", "32", "34", "96", "93", "95", "92", "94"}

// Paint returns s in a colour, or unchanged if on is false.
func Paint(s string, c Colour, on bool) string {
	if !on || c == Plain {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// cut shortens s to at most columns characters. Unlike text.Clip, which counts bytes, it is about the width of a
// screen.
func cut(s string, columns int) string {
	runes := []rune(s)
	if len(runes) <= columns {
		return s
	}
	if columns < 4 {
		return string(runes[:max(0, columns)])
	}
	return string(runes[:columns-3]) + "..."
}
