package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/plan"
	"nearmetal/internal/process"
)

// FindQEMU returns the process of a domain of the daemon at a, by the domain's name and UUID; nil: none. The caller
// closes it. The daemon need not run.
//
// Any user can start a process with a domain's UUID on its command line, which therefore proves nothing. The user's
// own daemon runs QEMU as the user, so the process must belong to this user. The host's daemon runs QEMU as another
// user. Its QEMU is the process that holds the lock of the domain's pid file, which libvirt has QEMU inherit.
func (a Address) FindQEMU(name string, id UUID) (*process.Process, error) {
	if a.Session && os.Geteuid() != 0 {
		return ownQEMU(id)
	}
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("%.80q is not the name of a domain", name)
	}
	p, err := lockHolder(filepath.Join(a.stateDir(), name+".pid"))
	if p == nil || err != nil {
		return nil, err
	}
	if !hasUUID(p.PID, id) { // another domain has the name now, or libvirtd's child has not executed QEMU yet
		p.Close()
		return nil, nil
	}
	return p, nil
}

// ownQEMU returns the process of this user that has a domain's UUID on its command line; nil: none.
func ownQEMU(id UUID) (*process.Process, error) {
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	me := os.Geteuid()
	for _, dir := range list {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !hasUUID(pid, id) {
			continue
		}
		p, err := process.Open(pid)
		if errors.Is(err, process.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// All four IDs are compared: a setuid program that a stranger starts keeps the stranger's real user.
		if users, _, err := p.Owner(); err == nil && users == (process.IDs{me, me, me, me}) && hasUUID(pid, id) {
			return p, nil
		}
		p.Close()
	}
	return nil, nil
}

// hasUUID reports whether a process has a domain's UUID on its command line, as libvirt writes it.
func hasUUID(pid int, id UUID) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(text, []byte("\x00-uuid\x00"+string(id)+"\x00"))
}

// lockHolder returns the process that holds the lock of a pid file according to the kernel; nil: none.
func lockHolder(path string) (*process.Process, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is not a file of libvirtd's: it belongs to user %d", path, st.Uid)
	}
	// A read lock conflicts only with write locks, which need a descriptor open for writing.
	holder := func() (int, error) {
		l := unix.Flock_t{Type: unix.F_RDLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case l.Type == unix.F_UNLCK:
			return 0, nil
		case l.Pid <= 0:
			return 0, fmt.Errorf("%s: the process that holds its lock is not seen from here", path)
		}
		return int(l.Pid), nil
	}
	pid, err := holder()
	if pid == 0 || err != nil {
		return nil, err
	}
	p, err := process.Open(pid)
	if errors.Is(err, process.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The process held the lock before and after it was opened, so its PID was not reused in between.
	if again, err := holder(); again != pid || err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Inspector returns an inspector of a running domain, regardless of its creator, which reads QEMU's monitor and
// /proc. It fails for a domain that does not run.
func (c *Conn) Inspector(d *Domain) (backend.Inspector, error) {
	p, err := c.Address.FindQEMU(d.Name, d.UUID)
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
