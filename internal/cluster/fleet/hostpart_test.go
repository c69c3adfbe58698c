package fleet

import (
	"bufio"
	"io"
	"testing"
	"time"
)

// Checks that the front's disconnection is detected while nobody reads from the connection, as while VMs boot.
func TestPartConnEnds(t *testing.T) {
	r, w := io.Pipe()
	c := newPartConn(bufio.NewReader(r), io.Discard)
	w.Close()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("its end was not seen")
	}
}
