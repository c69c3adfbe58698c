package local

import (
	"strings"
	"time"

	"nearmetal/internal/backend"
)

// lastLines returns the last n lines of a VM's console. If the kernel panicked, it returns n lines from the panic on,
// because later lines contain only registers.
func lastLines(i backend.Instance, n int) []string {
	return fromPanic(i.Console(100), n)
}

func fromPanic(lines []string, n int) []string {
	from := max(0, len(lines)-n)
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "Kernel panic") {
			from = min(from, i)
			break
		}
	}
	return lines[from:min(from+n, len(lines))]
}

// explainGrace bounds how long the error of a channel waits for its VM's end.
const explainGrace = 3 * time.Second

// explain returns the end of the console of a VM whose channel has ended, for the error of the channel's streams (at
// most 1,024 bytes). It waits until the VM's end is noted, for explainGrace at most: the VM's last output may still
// arrive, and a caller that gets the error then finds in Lost why the VM ended.
func explain(i backend.Instance, noted <-chan struct{}) string {
	t := time.NewTimer(explainGrace)
	defer t.Stop()
	select {
	case <-noted:
	case <-t.C:
	}
	lines := lastLines(i, 6)
	if len(lines) == 0 {
		return ""
	}
	return "its console's last lines:\n  " + strings.Join(lines, "\n  ")
}
