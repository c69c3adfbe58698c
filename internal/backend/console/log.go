package console

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Log is the path of a file that records a backend's actions for a VM whose serial port it cannot read. "" records
// nothing.
type Log string

// Say appends a line, formatted as by fmt.Sprintf, in one line and made Harmless. A log of LogMax bytes gets no more
// lines. A line that cannot be written is lost, because the log is only an aid and its loss must not stop a VM.
func (l Log) Say(format string, a ...any) {
	if l == "" {
		return
	}
	f, err := os.OpenFile(string(l), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() < LogMax {
		fmt.Fprintln(f, Harmless(strings.Join(strings.Fields(fmt.Sprintf(format, a...)), " "), logLineMax))
	}
}

// logLineMax bounds a line of a Log, in characters: errors of a cloud's API are long, and are logged whole.
const logLineMax = 4096

// LastLines returns at most the last n lines; none without a log.
func (l Log) LastLines(n int) []string {
	f, err := os.Open(string(l))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, LogMax+4*logLineMax+1))
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if lines[0] == "" {
		return nil
	}
	return lines[max(0, len(lines)-n):]
}
