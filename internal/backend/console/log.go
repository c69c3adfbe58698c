package console

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Log is the file with what a backend did for a VM whose serial port it cannot read. "" keeps nothing.
type Log string

// Say adds a line, formatted as by fmt.Sprintf, in one line and made Harmless. A log of LogMax bytes gets no more. A line that cannot
// be written is lost: the log is help for a person, and its loss must not stop a VM.
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

// logLineMax bounds a line of a Log, in characters: errors of a cloud's API are long, and are wanted whole.
const logLineMax = 4096

// LastLines returns the last n lines at most; none where there is no log.
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
