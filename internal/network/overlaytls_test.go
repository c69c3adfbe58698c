package network

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// Hosts whose clocks are decades apart join all the same: the secret counts, and no date.
func TestClocksApart(t *testing.T) {
	secret := make([]byte, 32)
	var ends [2]*tls.Config
	for i, year := range []int{1969, 2300} {
		c, err := SecretTLS(secret)
		if err != nil {
			t.Fatal(err)
		}
		c.Time = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		ends[i] = c
	}
	for range 2 {
		a, b := net.Pipe()
		server, client := tls.Server(a, ends[0]), tls.Client(b, ends[1])
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		if err := client.Handshake(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		a.Close()
		b.Close()
		ends[0], ends[1] = ends[1], ends[0]
	}
}
