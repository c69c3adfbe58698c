package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/process"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/wholefile"
)

// Region is a region of this host, as recorded in its file in State.
type Region struct {
	Key     string    `json:"key"` // derived from project, group and size; its files are named by it
	Project string    `json:"project"`
	Group   string    `json:"group"`
	Size    spec.Size `json:"size"`
	Node    int       `json:"node"` // NUMA node of its memory; -1: any
	Made    time.Time `json:"made"`
	VMs     []Member  `json:"vms"`
}

// Member is a VM that has a region, or is starting with one.
type Member struct {
	UUID string `json:"uuid"`
	Name string `json:"name"` // libvirt's
	// Daemon is the libvirtd that starts it, by PID and start time. While that runs, a VM without a QEMU is starting,
	// and libvirtd will report if it fails.
	Daemon      int    `json:"daemon"`
	DaemonStart string `json:"daemonStart"`
	// Door is a second name of the memory, in Shared, while libvirtd opens it; "": none.
	Door    string `json:"door,omitempty"`
	Plugged bool   `json:"plugged"`           // the VM has the device
	Problem string `json:"problem,omitempty"` // reason if it does not
}

var (
	keyForm     = lazyregexp.New(`^[0-9a-f]{32}$`)
	doorForm    = lazyregexp.New(`^nearmetal-[0-9a-f]{32}$`)
	errNoRecord = errors.New("no record of a region")
)

const (
	recordMax  = 1 << 20 // bytes
	membersMax = 1024    // VMs of a region: more than a host has
)

// key returns the name of the region for a project, group and size: if any of them differs, the region is another
// one.
func key(project, group string, size spec.Size) string {
	h := sha256.Sum256([]byte(fmt.Sprintf("%s\x00%s\x00%d", project, group, uint64(size))))
	return hex.EncodeToString(h[:16])
}

// lock acquires the lock of all regions, after it has made the directories, to which only root has access.
func (p Paths) lock() (*os.File, error) {
	if err := errors.Join(private(p.State), private(p.Memory)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.State, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("%s: %w", f.Name(), err)
			}
			return f, nil
		}
	}
}

// private makes a directory to which only this user has access. It rejects an existing one with another owner or
// wider permissions, which a world-writable parent allows others to make.
func private(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is not a directory of this user's alone: remove it", dir)
	}
	return nil
}

// read reads the record in a file of State. errNoRecord: the file is not a record.
func (p Paths) read(name string) (*Region, error) {
	k, ok := strings.CutSuffix(name, ".json")
	if !ok || !keyForm().MatchString(k) {
		return nil, errNoRecord
	}
	f, err := os.Open(filepath.Join(p.State, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &Region{}
	err = json.NewDecoder(io.LimitReader(f, recordMax)).Decode(r)
	if err == nil && (r.Key != k || len(r.VMs) > membersMax) {
		err = errors.New("it is not what nearmetal writes")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

// step is called between the steps of a change: tests end the process there.
var step = func() {}

// write writes a region's record.
func (p Paths) write(r *Region) error {
	defer step()
	return wholefile.Write(filepath.Join(p.State, r.Key+".json"), func(w io.Writer) error {
		return json.NewEncoder(w).Encode(r)
	})
}

func (p Paths) memory(r *Region) string { return filepath.Join(p.Memory, r.Key) }

// make creates a region's memory, whose record is already on disk.
func (p Paths) make(r *Region) error {
	m, err := region.Create(region.Options{SizeBytes: uint64(r.Size), HostNode: r.Node, Dir: p.Shared})
	if err != nil {
		return err
	}
	defer m.Close()
	step()
	err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", m.File.Fd()), unix.AT_FDCWD, p.memory(r), unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return fmt.Errorf("region: cannot name its memory %s: %w", p.memory(r), err)
	}
	return nil
}

// drop removes a region: its memory is zeroed, even if a process still maps it.
func (p Paths) drop(r *Region) error {
	for _, m := range r.VMs {
		p.closeDoor(&m)
	}
	step()
	if err := scrub(p.memory(r)); err != nil {
		return err
	}
	step()
	return os.Remove(filepath.Join(p.State, r.Key+".json"))
}

// scrub zeroes a region's memory and removes it; nil if it does not exist.
func scrub(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = (&region.Region{File: f}).Scrub()
	step()
	return errors.Join(err, os.Remove(path))
}

func (p Paths) closeDoor(m *Member) {
	if doorForm().MatchString(m.Door) {
		os.Remove(filepath.Join(p.Shared, m.Door))
	}
	m.Door = ""
}

// lives reports whether a VM runs, or is starting.
func lives(m *Member) (bool, error) {
	q, err := findQEMU(m.Name, m.UUID)
	if err != nil {
		return false, err
	}
	if q != nil {
		q.Close()
		return true, nil
	}
	if m.Plugged {
		return false, nil // it had a QEMU
	}
	d, err := process.Find(m.Daemon, m.DaemonStart)
	if errors.Is(err, process.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Close()
	return true, nil
}

// sweep drops VMs that have ended without a report, as after a kill of libvirtd, and regions without VMs. The lock is
// held. It returns the number of regions that it removed.
func (p Paths) sweep() (int, error) {
	list, err := p.List()
	if err != nil {
		return 0, err
	}
	p.tidy()
	known := map[string]bool{}
	n := 0
	for _, r := range list {
		var kept []Member
		for i := range r.VMs {
			alive, err := lives(&r.VMs[i])
			if err != nil {
				return n, err
			}
			if alive {
				kept = append(kept, r.VMs[i])
			} else {
				p.closeDoor(&r.VMs[i])
			}
		}
		switch {
		case len(kept) == 0:
			if err := p.drop(r); err != nil {
				return n, err
			}
			n++
			continue
		case len(kept) < len(r.VMs):
			r.VMs = kept
			if err := p.write(r); err != nil {
				return n, err
			}
		}
		known[r.Key] = true
	}
	files, err := os.ReadDir(p.Memory)
	if err != nil {
		return n, err
	}
	for _, f := range files {
		if keyForm().MatchString(f.Name()) && !known[f.Name()] {
			if err := scrub(filepath.Join(p.Memory, f.Name())); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// tidy removes the remains of a record whose writing was killed.
func (p Paths) tidy() {
	list, _ := filepath.Glob(filepath.Join(p.State, ".*.json.*"))
	for _, name := range list {
		os.Remove(name)
	}
}

// Sweep removes the regions whose VMs have ended, and returns their number. It requires root.
func (p Paths) Sweep() (int, error) {
	if _, err := os.Lstat(p.State); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	l, err := p.lock()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return p.sweep()
}
