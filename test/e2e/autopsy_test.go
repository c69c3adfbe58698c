package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// autopsy says what our clusters are doing, for a command that did not end within the bound:
// the last lines of the consoles, and of each process what its threads wait for and how much
// CPU time (in clock ticks, user and system) they take within a second.
func autopsy() string {
	var b strings.Builder
	consoles, _ := filepath.Glob(filepath.Join(runtime, "*", "console-*.log"))
	for _, path := range consoles {
		text, err := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		lines = lines[max(0, len(lines)-15):]
		fmt.Fprintf(&b, "%s (%d bytes, %v):\n\t%s\n", path, len(text), err, strings.Join(lines, "\n\t"))
	}
	before := make(map[string]string)
	for round := 0; round < 2; round++ {
		for _, pid := range ours() {
			tasks, _ := filepath.Glob(filepath.Join("/proc", pid, "task", "*"))
			for _, dir := range tasks {
				now := thread(dir)
				if round == 0 {
					before[dir] = now
				} else {
					fmt.Fprintf(&b, "%s %s, a second before %s\n", dir, now, before[dir])
				}
			}
		}
		if round == 0 {
			time.Sleep(time.Second) // no event: this is what the CPU time is measured over
		}
	}
	return b.String()
}

// thread returns a thread's name, state, where it waits and its CPU time in clock ticks, from
// its directory in /proc (proc(5), stat: fields 3, 14 and 15).
func thread(dir string) string {
	stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
	wchan, _ := os.ReadFile(filepath.Join(dir, "wchan"))
	name, rest, ok := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return "gone"
	}
	_, name, _ = strings.Cut(name, "(")
	return fmt.Sprintf("(%s) %s %s %s+%s", name, f[0], wchan, f[11], f[12])
}
