package session

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/guest"
)

func TestEnvironment(t *testing.T) {
	got := Environment(
		[]string{"PATH=/bin", "TMPDIR=/tmp/x", "A=1", "B=2", "broken", "=empty", "EQ=a=b"},
		[]string{"B=3", "C=4"}, []string{"C=5", "TMPDIR=/scratch"})
	want := "A=1 B=3 C=5 EQ=a=b PATH=/bin TMPDIR=/scratch"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestWorst(t *testing.T) {
	lost := errors.New("vm1 is gone")
	code, err := Worst([]Result{
		{VM: "vm0", Status: guest.Status{Code: 3}},
		{VM: "vm1", Err: lost},
		{VM: "vm2", Status: guest.Status{Signal: syscall.SIGTERM}},
	})
	if code != 128+15 || !errors.Is(err, lost) {
		t.Errorf("%d, %v", code, err)
	}
	if code, err := Worst([]Result{{VM: "vm0"}}); code != 0 || err != nil {
		t.Errorf("%d, %v; want none", code, err)
	}
}

func TestUmaskIsOnlyRead(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	e := Caller([]string{"true"}, nil)
	if *e.Umask != 0o027 || umask() != 0o027 {
		t.Errorf("umask %o, then %o; want 027", *e.Umask, umask())
	}
}

// Checks that signals which Go's runtime sends to its own process are not forwarded.
func TestRuntimeSignals(t *testing.T) {
	sigs, stop := Signals()
	defer stop()
	for range 10 {
		syscall.Kill(syscall.Getpid(), syscall.SIGURG)
	}
	syscall.Kill(syscall.Getpid(), syscall.SIGXCPU) // a higher number: of several pending signals, the lowest is delivered first
	if s := <-sigs; s != syscall.SIGXCPU {
		t.Errorf("got %v", s)
	}
}
