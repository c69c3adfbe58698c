package linejson

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestNothingLeft: after a line was read nothing of it is left in the stream, for any length. A reader would mistake
// the newline for the other side's next message. A json.Decoder leaves it if an object ends at the end of the
// decoder's buffer.
func TestNothingLeft(t *testing.T) {
	type object struct{ Text string }
	for n := 0; n < 9000; n++ {
		var b bytes.Buffer
		want := object{strings.Repeat("x", n)}
		if err := Write(&b, want); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReaderSize(&b, 16)
		var got object
		if err := Read(r, &got); err != nil || got != want {
			t.Fatalf("%d bytes: read %d bytes, %v", n, len(got.Text), err)
		}
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Fatalf("%d bytes: %q is left", n, rest)
		}
	}
}

func TestWhatFollows(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("{\"a\":7}\nbinary"))
	var v struct{ A int }
	if err := Read(r, &v); err != nil || v.A != 7 {
		t.Fatal(v, err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "binary" {
		t.Errorf("%q follows", rest)
	}
}

func TestBounds(t *testing.T) {
	var v any
	for _, c := range []struct {
		text string
		want string
	}{
		{"", "EOF"},
		{"{", "unexpected EOF"},
		{strings.Repeat(" ", MaxBytes) + "1\n", "a line of more than 8388608 bytes"},
		{"x\n", "invalid character"},
	} {
		if err := Read(bufio.NewReader(strings.NewReader(c.text)), &v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %s", c.text, err, c.want)
		}
	}
	if err := Write(io.Discard, strings.Repeat("x", MaxBytes-2)); err == nil {
		t.Error("a line that no reader takes was written")
	}
	if err := Write(io.Discard, strings.Repeat("x", MaxBytes-3)); err != nil {
		t.Error(err)
	}
}
