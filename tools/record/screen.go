package main

import (
	"bytes"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cell is a character of a screen and its colour (SGR; "": the default).
type cell struct {
	r      rune
	colour string
}

// screen is a terminal without a lower end: all output to it, line by line.
type screen struct {
	lines    [][]cell
	row, col int
	colour   string
	height   int // of the terminal: "home" is that many lines above the last
}

// write interprets output with the sequences that nearmetal and a shell use; others change nothing.
func (s *screen) write(text string) {
	for text != "" {
		if text[0] == '\x1b' {
			text = text[s.escape(text):]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch {
		case r == '\r':
			s.col = 0
		case r == '\n':
			s.row++
		case r == '\b':
			s.col = max(0, s.col-1)
		case r >= ' ':
			if s.col >= columns {
				s.row, s.col = s.row+1, 0
			}
			s.put(r)
			s.col++
		}
	}
}

// put sets the character under the cursor.
func (s *screen) put(r rune) {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	for len(s.lines[s.row]) <= s.col {
		s.lines[s.row] = append(s.lines[s.row], cell{r: ' '})
	}
	s.lines[s.row][s.col] = cell{r, s.colour}
}

// escape interprets the sequence that text begins with, and returns its length in bytes.
func (s *screen) escape(text string) int {
	if strings.HasPrefix(text, "\x1b]") { // a title, a mark
		if end := strings.IndexByte(text, '\a'); end > 0 {
			return end + 1
		}
		return len(text)
	}
	if !strings.HasPrefix(text, "\x1b[") {
		return min(2, len(text))
	}
	end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return len(text)
	}
	arg := text[2 : 2+end]
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 {
		n = 1
	}
	switch text[2+end] {
	case 'A':
		s.row = max(0, s.row-n)
	case 'C':
		s.col += n
	case 'D':
		s.col = max(0, s.col-n)
	case 'H':
		s.row, s.col = max(0, len(s.lines)-s.height), 0
	case 'K':
		s.cut()
	case 'J':
		s.cut()
		if s.row+1 < len(s.lines) {
			s.lines = s.lines[:s.row+1]
		}
	case 'm':
		s.colour = arg
		if arg == "0" || arg == "" {
			s.colour = ""
		}
	}
	return end + 3
}

// cut removes the characters from the cursor to the end of the line.
func (s *screen) cut() {
	if s.row < len(s.lines) && s.col < len(s.lines[s.row]) {
		s.lines[s.row] = s.lines[s.row][:s.col]
	}
}

// colours are those of the picture.
var colours = map[string]string{"1": "#ffffff", "2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "36": "#76e3ea"}

// most is the maximum number of lines of a command's output in the picture.
const most = 14

// svg draws the commands with the beginning of each one's output.
func (c *cast) svg() []byte {
	var shown [][]cell
	var s *screen
	flush := func() {
		if s == nil {
			return
		}
		lines := s.lines
		for len(lines) > 0 && (len(lines[len(lines)-1]) == 0 || plain(lines[len(lines)-1]) == "$ ") {
			lines = lines[:len(lines)-1] // the next prompt
		}
		if more := len(lines) - 1 - most; more > 1 {
			lines = append(append([][]cell{}, lines[:1+most]...), dim(fmt.Sprintf("… %d more lines", more)))
		}
		shown = append(shown, lines...)
	}
	for _, v := range c.events {
		if v.kind == "m" {
			flush()
			s = &screen{height: c.header.Height}
			s.write("\x1b[1m$ \x1b[0m") // the prompt was printed before
		} else if s != nil {
			s.write(v.data)
		}
	}
	flush()
	return draw(c.header.Title, shown)
}

func plain(line []cell) string {
	var b strings.Builder
	for _, c := range line {
		b.WriteRune(c.r)
	}
	return b.String()
}

func dim(text string) (line []cell) {
	for _, r := range text {
		line = append(line, cell{r, "2"})
	}
	return line
}

// Sizes of the picture, in px.
const (
	letter, lineHeight, margin = 7.8, 18, 16
)

// draw writes lines of a terminal as SVG.
func draw(title string, lines [][]cell) []byte {
	var b bytes.Buffer
	width, height := columns*letter+2*margin, len(lines)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="13" fill="#c9d1d9">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"%.0f\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", html.EscapeString(title), width, height)
	for i, line := range lines {
		if len(line) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<text xml:space="preserve" x="%d" y="%d">`, margin, margin+(i+1)*lineHeight-5)
		for len(line) > 0 {
			n := 1
			for n < len(line) && line[n].colour == line[0].colour {
				n++
			}
			text := html.EscapeString(plain(line[:n]))
			if fill := colours[line[0].colour]; fill != "" {
				text = `<tspan fill="` + fill + `">` + text + `</tspan>`
			}
			b.WriteString(text)
			line = line[n:]
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
