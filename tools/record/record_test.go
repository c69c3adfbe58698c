package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// The recording has the current commands of docs/start.md, and the picture is that of the recording.
func TestRecordingIsTrue(t *testing.T) {
	tutorial, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := commandsOf(string(tutorial), section)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../" + castFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.commands(); !slices.Equal(got, commands) {
		t.Errorf("recorded: %q\ndocs/start.md: %q\nrun make recording", got, commands)
	}
	if again, err := c.encode(); err != nil || !bytes.Equal(again, text) {
		t.Errorf("%s is not as it is written (%v)", castFile, err)
	}
	if got, err := os.ReadFile("../../" + picture); err != nil || !bytes.Equal(got, c.svg()) {
		t.Errorf("%s is not that of the recording (%v): run make recording", picture, err)
	}
}

func TestCommandsOf(t *testing.T) {
	const page = "# a\n\n## B\n\ntext\n\n```\n$ one x   # what it does\n$ eval $(two)\n```\n"
	if got, err := commandsOf(page, "## B"); err != nil || !slices.Equal(got, []string{"one x", "eval $(two)"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "\n## B\n", "\n## B\n\n```\n$ x\n", "\n## B\n\n```\nx\n```\n"} {
		if got, err := commandsOf(bad, "## B"); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestScreen(t *testing.T) {
	for text, want := range map[string]string{
		"a\r\nb":                       "a|b",
		"one\r\n\r\x1b[1A\x1b[Jtwo":    "two",
		"abc\b\bX":                     "aXc",
		"abc\rx\x1b[K":                 "x",
		"\x1b]7777;0\atext\x1b[31mred": "textred",
		strings.Repeat("x", 101):       strings.Repeat("x", 100) + "|x",
		"cut \x1b[":                    "cut ",
		"\x1b]open":                    "",
		"a\x1b[99Ab":                   "ab",
	} {
		s := screen{height: rows}
		s.write(text)
		var lines []string
		for _, l := range s.lines {
			lines = append(lines, plain(l))
		}
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
