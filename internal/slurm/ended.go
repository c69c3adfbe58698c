package slurm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killed bounds how long the kernel may take to end killed processes.
const killed = 10 * time.Second

// end kills the processes of the job's VMs: those of its user whose environment has the job's mark (slurm/boot.c).
func (j jobFolder) end() error {
	if j.uid < 0 {
		return nil
	}
	mark := fmt.Appendf(nil, "NEARMETAL_SLURM_JOB=%s/%d.%s", j.state, j.id, j.node)
	for until := time.Now().Add(killed); ; time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, p := range processes() {
			pid, _ := strconv.Atoi(filepath.Base(p))
			if j.killIf(pid, func() bool {
				env, _ := readSome(p + "/environ")
				return bytes.Contains(append([]byte{0}, env...), append(append([]byte{0}, mark...), 0))
			}) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d processes of its VMs do not end", left)
		}
	}
}

// readSome reads the start of a file of a user's process, because the user may make it terabytes long
// (NM_ENVIRON_MAX, slurm/environ.h).
func readSome(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 8<<20))
}

// killIf kills a process of the job's user if chosen returns true, and returns whether it did.
func (j jobFolder) killIf(pid int, chosen func() bool) bool {
	// The pidfd is opened before the checks, so that it refers to the checked process even if its number is reused.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if pid <= 1 || unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) != nil || int(st.Uid) != j.uid || !chosen() {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// removeCgroups removes the job's cgroups, which Slurm could not remove while VMs were in them. It first kills
// processes of the job's user in them, and waits for their end at most for wait. It returns a cgroup that remains; ""
// if none does.
func (j jobFolder) removeCgroups(wait time.Duration) (stays string) {
	if j.uid < 0 {
		return ""
	}
	until := time.Now().Add(wait)
	user := fmt.Sprintf("uid_%d/job_%d", j.uid, j.id)
	for _, place := range []string{
		"*/slurm_" + j.node + "/" + user, "*/slurm/" + user, "slurm_" + j.node + "/" + user, "slurm/" + user,
		fmt.Sprintf("system.slice/%s_slurmstepd.scope/job_%d", j.node, j.id), fmt.Sprintf("system.slice/slurmstepd.scope/job_%d", j.id),
	} {
		dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", place))
		for _, dir := range dirs {
			if !j.removeCgroup(dir, until) {
				stays = dir
			}
		}
	}
	return stays
}

// removeCgroup removes a cgroup and those in it, and returns whether it did.
func (j jobFolder) removeCgroup(dir string, until time.Time) bool {
	var all []string
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, p)
		}
		return nil
	})
	for i := len(all) - 1; i >= 0; i-- {
		for unix.Rmdir(all[i]) == unix.EBUSY && j.emptyCgroup(all[i]) && time.Now().Before(until) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	_, err := os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// emptyCgroup kills the user's processes in a cgroup. It returns false if other processes are in it.
func (j jobFolder) emptyCgroup(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	defer f.Close()
	own := true
	for scan := bufio.NewScanner(f); scan.Scan(); {
		pid, _ := strconv.Atoi(scan.Text())
		// The process may have ended since the list was read, and another process elsewhere may have its number.
		own = j.killIf(pid, func() bool {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			return inJob(text, j.id)
		}) && own
	}
	return own
}

// inJob reports whether the content of /proc/PID/cgroup names a job's own cgroup, or one in it (names_job,
// slurm/cgroup.c).
func inJob(cgroups []byte, job uint32) bool {
	_, after, found := bytes.Cut(cgroups, fmt.Appendf(nil, "/job_%d", job))
	return found && (len(after) == 0 || after[0] < '0' || after[0] > '9')
}
