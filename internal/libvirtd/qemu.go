package libvirtd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/host/process"
	"nearmetal/internal/plan"
)

// FindQEMU returns the process of the domain with a UUID, which it has on its command line; nil: there is none. The
// caller closes it.
func FindQEMU(id UUID) (*process.Process, error) {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("\x00-uuid\x00"+string(id)+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		start, err := process.Start(pid)
		if err != nil {
			continue
		}
		p, err := process.Find(pid, start)
		if errors.Is(err, process.ErrGone) {
			continue
		}
		return p, err
	}
	return nil, nil
}

// Inspector reads a running domain back, whoever made it, from its QEMU's monitor and from /proc. It fails for one
// that does not run.
func (c *Conn) Inspector(d *Domain) (backend.Inspector, error) {
	p, err := FindQEMU(d.UUID)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("domain %s does not run on this host", d.Name)
	}
	defer p.Close()
	return inspector{c.Monitor(d), p.PID}, nil
}

type inspector struct {
	monitor qemufacts.Monitor
	pid     int
}

func (i inspector) Inspect(ctx context.Context, vm *plan.VM, region *plan.Region) *backend.Facts {
	return qemufacts.Gather(ctx, qemufacts.QEMU{Plan: vm, PID: i.pid, QMP: i.monitor}, region)
}
