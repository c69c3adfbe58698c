package terminal

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a real terminal, columns wide.
func openTerminal(t *testing.T, columns int) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	return keyboard, screen
}

func TestTerminalIsSeen(t *testing.T) {
	_, screen := openTerminal(t, 72)
	if !IsTerminal(screen) || width(screen) != 72 {
		t.Errorf("terminal %v, %d columns", IsTerminal(screen), width(screen))
	}
	for _, test := range []struct {
		term, noColor  string
		live, coloured bool
	}{
		{"xterm", "", true, true},
		{"xterm", "1", true, false},
		{"dumb", "", false, false},
		{"", "", false, false},
	} {
		t.Setenv("TERM", test.term)
		t.Setenv("NO_COLOR", test.noColor)
		if Live(screen) != test.live || Coloured(screen) != test.coloured {
			t.Errorf("%+v: live %v, coloured %v", test, Live(screen), Coloured(screen))
		}
	}
}

// TestProgressOnATerminal waits for a live line on a real terminal, with real beats.
func TestProgressOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	keyboard, screen := openTerminal(t, 80)
	p := NewProgress(screen, false)
	s := p.Start("booting 2 VMs")
	keyboard.SetReadDeadline(time.Now().Add(time.Minute))
	seen := ""
	for !strings.Contains(seen, "booting 2 VMs") {
		data := make([]byte, 1024)
		n, err := keyboard.Read(data)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(data[:n])
	}
	s.Done()
	p.Printf("end")
	for !strings.Contains(seen, "end") {
		data := make([]byte, 1024)
		n, err := keyboard.Read(data)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(data[:n])
	}
	if strings.Contains(seen, "\x1b[0m") || !strings.Contains(seen, "\x1b[1A\x1b[J") {
		t.Errorf("%q", seen)
	}
}
