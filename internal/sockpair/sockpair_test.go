package sockpair

import (
	"io"
	"testing"
)

// TestConn: data written at one end is read at the other, until the writer closes its end for writing.
func TestConn(t *testing.T) {
	ours, theirs, err := Conn("pair")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if _, err := ours.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := ours.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(theirs); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
}
