// Package text prepares foreign text for use in a message: safe to show on a terminal, bounded, quoted.
package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns s as one line without effect on a terminal: line ends and tabs become spaces; control characters,
// invisible format characters and broken UTF-8 become '?'.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return harmless(r)
	}, strings.ToValidUTF8(s, "?"))
}

// CleanLines is Clean for text of several lines: line ends and tabs stay.
func CleanLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return harmless(r)
	}, strings.ToValidUTF8(s, "?"))
}

// harmless returns r, or '?' for a control character or for one that only changes how others are shown, such as U+202E.
func harmless(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
		return '?'
	}
	return r
}

// OneLine is Clean for text of any layout: each run of white space becomes one space, and none is left at the ends.
func OneLine(s string) string { return Clean(strings.Join(strings.Fields(s), " ")) }

// LastLine returns the last line of s that is not blank, Clean and without white space at its ends; "" if there is
// none.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return Clean(strings.TrimSpace(s[strings.LastIndexAny(s, "\n\r")+1:]))
}

// ASCII returns s without any character that is not printable ASCII.
func ASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}

// Cut returns the first limit bytes of s, or fewer to avoid cutting a character in two, with '?' for broken UTF-8.
func Cut(s string, limit int) string {
	if len(s) > limit {
		end := limit
		for end > max(0, limit-utf8.UTFMax+1) && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?")
}

// Clip is Cut with "…" at the end of a text that was longer than limit bytes.
func Clip(s string, limit int) string {
	if len(s) > limit {
		return Cut(s, limit) + "…"
	}
	return Cut(s, limit)
}

// quoteLimit bounds, in bytes, how much of a text Quote shows.
const quoteLimit = 60

// Quote returns s in double quotes and with Go's escapes, for a message about the user's input. Of a text longer than
// 60 bytes it shows the beginning, with "..." after the quotes.
func Quote(s string) string {
	if len(s) > quoteLimit {
		return strconv.Quote(Cut(s, quoteLimit)) + "..."
	}
	return strconv.Quote(s)
}

// plain are the characters, in addition to letters and digits, that have no special meaning in any POSIX shell.
const plain = "_@%+=:,./-"

// Shell returns a line that a POSIX shell splits into exactly these words, quoted where necessary.
func Shell(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(plain, r))
		}) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
