package job

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/text"
)

const (
	lostShown = 10          // files that are named
	lostTime  = time.Second // for the VMs' answers
)

// written are files that were written in VMs outside their shares, as VM:PATH in their order.
type written struct {
	files []string
	more  bool // others exist
}

// writtenIn asks VMs for the files that were written in them outside the shares, in the last since (0: ever). A VM
// that does not answer within a second counts as having none, because the answer is only used for a warning.
func writtenIn(c *client.Client, vms []string, since time.Duration) (w written) {
	ctx, cancel := context.WithTimeout(context.Background(), lostTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, vm := range vms {
		wg.Add(1)
		go func() {
			defer wg.Done()
			files, more, err := c.Written(ctx, vm, since)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			w.more = w.more || more
			for _, f := range files {
				w.files = append(w.files, vm+":"+f)
			}
		}()
	}
	wg.Wait()
	sort.Strings(w.files)
	return w
}

// lines returns lines that report the files outside shares, the consequence, and the first ten names; nil if there
// are none.
func (w written) lines(follows string) []string {
	if len(w.files) == 0 {
		return nil
	}
	head := fmt.Sprintf("%d files that were written in VMs are in no share", len(w.files))
	switch {
	case w.more:
		head = "more than " + head
	case len(w.files) == 1:
		head = "a file that was written in a VM is in no share"
	}
	out := []string{head + ": " + follows}
	for i, f := range w.files {
		if i == lostShown {
			return append(out, fmt.Sprintf("  and %d more", len(w.files)-i))
		}
		out = append(out, "  "+text.Clean(f))
	}
	return out
}

// The consequence for the files: of a cluster that continues, and of one that ends.
const (
	lostLater = "gone when the cluster ends (nearmetal cp copies them out, --share DIR keeps what is in DIR)"
	lostNow   = "they are gone (--share DIR keeps what is in DIR)"
)

// Lost returns lines about files in the VMs of a cluster that are lost with it; nil: none.
func Lost(c *client.Client) []string {
	if c.Record.Paused {
		return nil // the VMs do not answer
	}
	return writtenIn(c, vmNames(&c.Record), 0).lines(lostNow)
}

// warnWritten prints to w, after a command that began at start, which files were written in VMs since.
func warnWritten(w io.Writer, c *client.Client, vms []string, start time.Time) {
	for _, line := range writtenIn(c, vms, time.Since(start)).lines(lostLater) {
		fmt.Fprintf(w, "nearmetal: %s\n", line)
	}
}

// vmNames returns the names of a cluster's VMs.
func vmNames(r *state.Record) []string {
	names := make([]string, len(r.VMs))
	for i, v := range r.VMs {
		names[i] = v.Name
	}
	return names
}
