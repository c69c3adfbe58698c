package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
)

// TestReachAgain: a daemon that is being killed accepts a connection and ends it. Another connection is made, a
// bounded number of times.
func TestReachAgain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "libvirt-sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			n++
			c.Close()
		}
		accepted <- n
	}()
	if _, err := Reach(context.Background(), Address{Socket: socket}); !errors.Is(err, ErrLost) {
		t.Errorf("%v, want %v", err, ErrLost)
	}
	l.Close()
	if n := <-accepted; n != openTries {
		t.Errorf("%d connections, want %d", n, openTries)
	}
}
