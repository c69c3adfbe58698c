package mpi

import (
	"os/exec"
	"strings"
	"testing"
)

// wrappers stand between the launcher and each rank: PROGRAM is replaced by the rank's
// command. They keep a process of their own there, so a rank's parent is not the launcher's.
var wrappers = map[string][]string{
	"shell":   {"bash", "-c", "PROGRAM; true"},
	"timeout": {"timeout", "600", "PROGRAM"},
	"two":     {"bash", "-c", "timeout 600 PROGRAM; true"},
	"time":    {"bash", "-c", "time PROGRAM"},
	"perf":    {"perf", "stat", "-o", "/dev/null", "PROGRAM"},
}

// Ranks that nobody has given a region find the same one behind a wrapper.
func TestWrapped(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		for name, wrapper := range wrappers {
			t.Run(name, func(t *testing.T) {
				if _, err := exec.LookPath(wrapper[0]); err != nil {
					t.Skip("no ", wrapper[0])
				}
				program := []string{bin + "/nm_latency", "--sizes", "8:8", "--iterations", "20:4", "--warmup", "2:1"}
				var args []string
				for _, a := range wrapper {
					if a == "PROGRAM" {
						args = append(args, program...)
						continue
					}
					args = append(args, strings.ReplaceAll(a, "PROGRAM", strings.Join(program, " ")))
				}
				_, log := l.start(t, 2, []string{"FI_PROVIDER=ivshmem", "FI_IVSHMEM_CORE=none",
					"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl"}, args...)
				uses(t, log).all(t, 2)
			})
		}
	})
}
