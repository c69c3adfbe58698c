package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPaths are the possible paths of the machine's lock of benchmarks; the first usable one counts. Two concurrent
// runs would measure each other.
var lockPaths = []string{"/run/lock/nearmetal-bench.lock", "/tmp/nearmetal-bench.lock"}

// Lock reserves this machine for one run of benchmarks. The kernel releases it with its process.
type Lock struct{ f *os.File }

// TakeLock acquires the machine's lock. With wait it waits for another run to end, and reports who that is; otherwise
// that is an error.
func TakeLock(ctx context.Context, wait bool, tell func(line string)) (*Lock, error) {
	f, err := openLock()
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			// Writes the holder for others to read; another user's file is locked, but not written.
			if f.Truncate(0) == nil {
				fmt.Fprintf(f, "%d\n", os.Getpid())
			}
			return &Lock{f}, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", f.Name(), err)
		case !wait:
			who := holder(f)
			f.Close()
			return nil, fmt.Errorf("another benchmark runs on this machine%s: two at once would disturb each other; wait for it with --wait", who)
		case !told && tell != nil:
			tell("waiting for another benchmark on this machine" + holder(f))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond): // flock has no wait that a context could end
		}
	}
}

// Release releases the lock.
func (l *Lock) Release() { l.f.Close() }

// openLock opens the lock file without following links. The file stays, because its name is the lock.
func openLock() (*os.File, error) {
	var last error
	for _, path := range lockPaths {
		for _, flags := range []int{unix.O_RDWR | unix.O_CREAT, unix.O_RDONLY} {
			f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
			if err == nil {
				if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
					return f, nil
				}
				f.Close()
				err = fmt.Errorf("%s is not a plain file", path)
			}
			last = err
		}
	}
	return nil, fmt.Errorf("cannot open the machine's lock of benchmarks: %w", last)
}

func holder(f *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if pid := strings.TrimSpace(string(text)); pid != "" && strings.Trim(pid, "0123456789") == "" {
		return " (process " + pid + ")"
	}
	return ""
}
