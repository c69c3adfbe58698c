package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

// claimDir has the files of claims, which state the cluster that uses a function given to a user. A claim is a lock
// on the function's file, which Bind makes for that user; the kernel releases it when the owner of the cluster ends,
// also by kill -9. If two clusters want the last VF they request the same lock, and one gets it.
const claimDir = "/run/nearmetal/devices"

// Claim reserves a function for a cluster, until Close or the end of the process.
type Claim struct{ f *os.File }

// Close releases the function.
func (c *Claim) Close() error { return c.f.Close() }

// claimText is the content of a claim's file.
type claimText struct {
	Cluster string `json:"cluster"`
	PID     int    `json:"pid"`
}

// ClaimedError reports that another cluster has a function.
type ClaimedError struct{ Address, Holder string }

func (e *ClaimedError) Error() string {
	return fmt.Sprintf("device %s is in use by %s", e.Address, e.Holder)
}

func (h *Host) claimPath(at string) string { return h.path(claimDir, at) }

// makeClaimFile makes the file of a function's claims, owned by the user.
func (h *Host) makeClaimFile(at string, uid, gid int) error {
	if err := os.MkdirAll(h.path(claimDir), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(h.claimPath(at), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return f.Chown(uid, gid)
}

// Claim reserves a function for a cluster. A *ClaimedError reports that another has it.
func (h *Host) Claim(at, cluster string) (*Claim, error) {
	if !address().MatchString(at) {
		return nil, fmt.Errorf("%.40q is not a PCI address", at)
	}
	if os.Geteuid() == 0 {
		if _, err := os.Lstat(h.claimPath(at)); errors.Is(err, fs.ErrNotExist) {
			if err := h.makeClaimFile(at, 0, 0); err != nil {
				return nil, fmt.Errorf("device %s: %w", at, err)
			}
		}
	}
	f, err := os.OpenFile(h.claimPath(at), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("device %s is not handed to you: ask root for nearmetal device bind %s --user %s", at, at, userName(os.Geteuid()))
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", at, reason(err))
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			return nil, &ClaimedError{at, h.claimant(at)}
		}
		return nil, fmt.Errorf("device %s: %w", at, err)
	}
	b, err := json.Marshal(claimText{cluster, os.Getpid()})
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(b, 0)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("device %s: %w", at, err)
	}
	return &Claim{f}, nil
}

// claimant returns the cluster that has claimed a function, "" for none.
func (h *Host) claimant(at string) string {
	who, _ := h.claim(at)
	return who
}

// claim returns who has claimed a function, "" for nobody, and by which process. Both values are written by the
// holder.
func (h *Host) claim(at string) (who string, pid int) {
	f, err := os.OpenFile(h.claimPath(at), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", 0
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return "", 0
	}
	who = "another cluster"
	var claim claimText
	b, _ := io.ReadAll(io.LimitReader(f, 400))
	if json.Unmarshal(b, &claim) == nil && claim.Cluster != "" && len(claim.Cluster) <= 63 {
		who = "cluster " + text.ASCII(claim.Cluster)
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		who += " of " + userName(int(st.Uid))
	}
	return who, claim.PID
}
