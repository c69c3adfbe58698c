package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/text"
)

// memoryBound bounds the query whether VMs ran out of memory.
const memoryBound = 5 * time.Second

// memoryOption is nearmetal's option that gives VMs more memory.
const memoryOption = "--memory"

// WarnMemory prints to w that a command's VM ran out of memory, if st reports it; option raises the VM's memory.
func WarnMemory(r *state.Record, vm string, st guest.Status, option string, w io.Writer) {
	if st.OutOfMemory {
		fmt.Fprintf(w, "nearmetal: %s\n", text.Clean(r.OutOfMemory(vm, option)))
	}
}

// warnLaunched prints to w which of a cluster's VMs have run out of memory since they started. Their ranks were
// started by a launcher, which only reports that a signal ended one. short: the first VM is known to have run out.
func warnLaunched(r *state.Record, short bool, w io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), memoryBound)
	defer cancel()
	answers, _ := Ask(ctx, r.Name, "cat /proc/vmstat") // without an answer, if the VMs have ended, that is reported
	for i, v := range r.VMs {
		WarnMemory(r, v.Name, guest.Status{OutOfMemory: killedForMemory(answers[v.Name]) || short && i == 0}, memoryOption, w)
	}
}

// killedForMemory reports whether a kernel's /proc/vmstat counts a process that was killed because memory ran out.
func killedForMemory(vmstat []byte) bool {
	for _, line := range bytes.Split(vmstat, []byte("\n")) {
		if count, ok := strings.CutPrefix(string(line), "oom_kill "); ok {
			n, err := strconv.ParseUint(count, 10, 64)
			return err == nil && n > 0
		}
	}
	return false
}
