package fleet

import (
	"bufio"
	"io"
	"testing"
	"time"
)

// The end of a front is seen while nobody reads of the connection: the VMs still boot.
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
