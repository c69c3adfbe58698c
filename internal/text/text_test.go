package text

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for s, want := range map[string]string{
		"plain": "plain", "a\nb\tc": "a b c", "\x1b[2Jx\r\x00": "?[2Jx??", "\xff": "?", "Zürich €": "Zürich €", "\u202egnp": "?gnp",
		"\u009b2J": "?2J", "a\u00a0b": "a\u00a0b",
	} {
		if got := Clean(s); got != want {
			t.Errorf("%q: %q, not %q", s, got, want)
		}
	}
	if got, want := CleanLines("a\nb\tc\r\x1b\xff"), "a\nb\tc???"; got != want {
		t.Errorf("lines: %q, not %q", got, want)
	}
	if got, want := OneLine("  a\r\n\tb\x1b  c\n"), "a b? c"; got != want {
		t.Errorf("one line: %q, not %q", got, want)
	}
	if got, want := ASCII("a\tb é\x7f\xff~"), "ab ~"; got != want {
		t.Errorf("ASCII: %q, not %q", got, want)
	}
}

func TestLastLine(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "\n \n": "", "one": "one", "one\ntwo\r\n\n": "two", "10%\r20%\r": "20%", "a\n\x1b[1m b ": "?[1m b",
	} {
		if got := LastLine(s); got != want {
			t.Errorf("%q: %q, not %q", s, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s         string
		limit     int
		cut, clip string
	}{
		{"", 0, "", ""},
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "abc", "abc…"},
		{"abé", 3, "ab", "ab…"},
		{"ab€d", 4, "ab", "ab…"},
		{"a\xffb", 3, "a?b", "a?b"},
		{"\x80\x80\x80\x80\x80\x80", 5, "?", "?…"},
		{"€", 1, "", "…"},
	} {
		if got := Cut(c.s, c.limit); got != c.cut {
			t.Errorf("Cut(%q, %d): %q, not %q", c.s, c.limit, got, c.cut)
		}
		if got := Clip(c.s, c.limit); got != c.clip {
			t.Errorf("Clip(%q, %d): %q, not %q", c.s, c.limit, got, c.clip)
		}
	}
}

func TestQuote(t *testing.T) {
	sixty := strings.Repeat("x", 60)
	for s, want := range map[string]string{
		"": `""`, "a\n\"": `"a\n\""`, sixty: `"` + sixty + `"`, sixty + "x": `"` + sixty + `"...`,
		sixty[1:] + "é": `"` + sixty[1:] + `"...`, "\x1b": `"\x1b"`,
	} {
		if got := Quote(s); got != want {
			t.Errorf("%q: %s, not %s", s, got, want)
		}
	}
}

// A shell reads back exactly the words.
func TestShell(t *testing.T) {
	words := []string{"plain", "", "a b", "it's", "$HOME `id` \"x\"", "^slurm,tm", "a;b", "a=b", "é", "*", "~", "-n", "#"}
	out, err := exec.Command("/bin/sh", "-c", `for w in `+Shell(words...)+`; do printf '%s\n' "$w"; done`).Output()
	if want := strings.Join(words, "\n") + "\n"; err != nil || string(out) != want {
		t.Errorf("%q came back as %q, %v", want, out, err)
	}
	if got, want := Shell("ls", "/a-b_c.d:e,f=g+h@i%1", "x y"), "ls /a-b_c.d:e,f=g+h@i%1 'x y'"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

func FuzzClip(f *testing.F) {
	f.Add("ab€d\xff", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, len(s)+1))
		got := Cut(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("Cut(%q, %d): %q", s, limit, got)
		}
		if utf8.ValidString(s) && !strings.HasPrefix(s, got) {
			t.Errorf("Cut(%q, %d): %q does not begin it", s, limit, got)
		}
	})
}
