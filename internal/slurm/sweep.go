package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/hugepage"
	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/process"
	"nearmetal/internal/slurm/conf"
)

// Sweep removes the remains of jobs whose epilog did not run on this host, or did not finish: plugstack.conf was
// being rewritten, or the epilog or slurmd was killed. It also removes cgroups that an epilog could not remove
// because a process was in them.
type Sweep struct {
	Root   string // parent of sys, dev, run and var; "": this host
	State  string // the plugin's directory of running jobs (state= in plugstack.conf)
	Node   string // Slurm's name of a node on this host; "": all that have directories
	Except uint32 // the number of a job to skip; 0: none
}

// DefaultState is the plugin's directory of running jobs unless plugstack.conf names another.
const DefaultState = "/run/nearmetal-slurm"

// askLimit bounds a query to slurmctld about a job.
const askLimit = time.Minute

// folderName matches the name of a job's directory: JOB.NODE.
var folderName = lazyregexp.New(`^([1-9][0-9]{0,9})\.([A-Za-z0-9_.-]{1,127})$`)

// Run ends the processes of such jobs, returns their VFs and huge pages, and removes their directories. It returns
// one line per job, and the changes that it undid. A job is swept only if none of its slurmstepd runs here and if
// slurmctld, queried with the job's own slurm.conf, reports that it is over on its node. Without an answer the job is
// kept, and Run returns an error.
func (s Sweep) Run(ctx context.Context) (jobs []string, undone []journal.Change, err error) {
	jobs, err = s.folders(ctx)
	changes, bad := giveBack(s.Root, "", s.State)
	pages, worse := hugepage.Return(s.Root, hugepage.Job{State: s.State})
	return jobs, append(changes, pages...), errors.Join(err, bad, worse)
}

// folders sweeps the directories of jobs. It holds a lock, so that no prolog creates one in the meantime.
func (s Sweep) folders(ctx context.Context) (jobs []string, err error) {
	dir, err := os.OpenFile(s.State, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	silent := map[string]bool{} // slurm.confs whose slurmctld did not answer, because a further query would take long
	for _, name := range names {
		if j, ok := readLeft(s.State, name); ok {
			if j.id == s.Except || s.Node != "" && j.node != s.Node || j.requeued() {
				continue
			}
			if stays := j.removeLeft(); stays == "" {
				jobs = append(jobs, fmt.Sprintf("cgroup of job %d on %s", j.id, j.node))
			} else {
				err = errors.Join(err, fmt.Errorf("job %d on %s: cgroup %s stays: a process is in it", j.id, j.node, stays))
			}
			continue
		}
		j, ok := readJob(s.State, name)
		if !ok || j.id == s.Except || s.Node != "" && j.node != s.Node || silent[j.conf] || j.attended() {
			continue
		}
		over, bad := j.over(ctx)
		silent[j.conf] = bad != nil
		if bad == nil && over {
			if bad = j.remove(); bad == nil {
				jobs = append(jobs, fmt.Sprintf("job %d on %s, whose epilog did not run", j.id, j.node))
			}
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("job %d on %s: %w", j.id, j.node, bad))
		}
	}
	return jobs, err
}

// ownFolder returns an error unless only this user may write to the directory.
func ownFolder(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s: others than user %d may write to it", dir.Name(), os.Geteuid())
	}
	return nil
}

// jobFolder describes root's files for a job on a host (slurm/state.h).
type jobFolder struct {
	state, node string
	id          uint32
	uid         int    // -1: unknown
	conf        string // slurm.conf of its Slurm; "": unknown
}

func readJob(state, name string) (j jobFolder, ok bool) {
	m := folderName().FindStringSubmatch(name)
	if m == nil {
		return j, false
	}
	id, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil {
		return j, false
	}
	j = jobFolder{state: state, node: m[2], id: uint32(id), uid: -1}
	// The second line of a request: UID GID.
	if request, err := os.ReadFile(filepath.Join(j.path(), "request")); err == nil {
		if lines := strings.Split(string(request), "\n"); len(lines) > 1 {
			uid, _, _ := strings.Cut(lines[1], " ")
			if n, err := strconv.ParseUint(uid, 10, 32); err == nil {
				j.uid = int(n)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(j.path(), "conf")); err == nil {
		j.conf = string(text)
	}
	return j, true
}

// leftPrefix starts the names of files that an epilog leaves if a job's cgroup remains (NM_LEFT, slurm/state.h).
const leftPrefix = "cgroups-"

// readLeft reads such a file. An unreadable one names no user, and therefore no cgroup.
func readLeft(state, name string) (j jobFolder, ok bool) {
	name, ok = strings.CutPrefix(name, leftPrefix)
	if !ok {
		return j, false
	}
	if j, ok = readJob(state, name); !ok {
		return j, false
	}
	j.uid = -1
	text, _ := os.ReadFile(j.leftPath())
	if uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
		j.uid = int(uid)
	}
	return j, true
}

func (j jobFolder) leftPath() string {
	return filepath.Join(j.state, fmt.Sprintf("%s%d.%s", leftPrefix, j.id, j.node))
}

// requeued reports whether the job runs again after it was requeued, with the same number and cgroups.
func (j jobFolder) requeued() bool {
	_, err := os.Lstat(j.path())
	return err == nil || j.attended()
}

// removeLeft removes the cgroups that the job's epilog left, and the file that records them. It returns one that
// remains.
func (j jobFolder) removeLeft() (stays string) {
	if stays = j.removeCgroups(0); stays == "" {
		os.Remove(j.leftPath())
	}
	return stays
}

func (j jobFolder) path() string { return filepath.Join(j.state, fmt.Sprintf("%d.%s", j.id, j.node)) }

// attended reports whether a slurmstepd of the job runs on this host. A slurmstepd writes the job over its command
// line; because any user may choose a command line, only root's processes of that program count.
func (j jobFolder) attended() bool {
	name := fmt.Appendf(nil, "slurmstepd: [%d.", j.id)
	for _, dir := range processes() {
		if line, _ := os.ReadFile(dir + "/cmdline"); !bytes.HasPrefix(line, name) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		p, err := process.Open(pid)
		if err != nil {
			continue
		}
		runs := p.Runs("slurmstepd")
		p.Close()
		if runs {
			return true
		}
	}
	return false
}

// processes returns the directories of all processes in /proc.
func processes() []string {
	list, _ := filepath.Glob("/proc/[0-9]*")
	return list
}

// errNoSlurm reports that squeue is missing.
var errNoSlurm = errors.New("squeue is not found: is Slurm's bin directory in PATH?")

// over queries slurmctld whether the job is over on its node.
func (j jobFolder) over(ctx context.Context) (bool, error) {
	squeue, err := exec.LookPath("squeue")
	if err != nil {
		return false, errNoSlurm
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	// These columns contain no text of the user.
	cmd := exec.CommandContext(ctx, squeue, "--noheader", "--states=all", "--jobs="+strconv.FormatUint(uint64(j.id), 10), "--format=%A %T %N")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	file := j.conf
	if file == "" {
		file = os.Getenv("SLURM_CONF")
	}
	if file != "" {
		if _, err := os.Stat(file); err != nil {
			return false, fmt.Errorf("whether it runs cannot be asked: %w", err) // squeue waits a minute for slurmctld
		}
		cmd.Env = append(cmd.Env, "SLURM_CONF="+file)
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return judge(j.id, j.node, out.String(), said.String(), err)
}

// judge parses squeue's answer: whether job id is over on a node. Several jobs of an array may match one number.
func judge(id uint32, node, out, said string, failed error) (bool, error) {
	if failed != nil {
		// Slurm forgets a job some minutes after its end (MinJobAge).
		if strings.Contains(said, "Invalid job id specified") {
			return true, nil
		}
		line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
		return false, fmt.Errorf("squeue does not say whether it runs: %w: %.200s", failed, line)
	}
	for _, line := range strings.Split(out, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != strconv.FormatUint(uint64(id), 10) {
			continue
		}
		switch f[1] {
		case "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
			"LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED", "PENDING":
			return true, nil
		}
		if len(f) < 3 {
			return true, nil // it has no node
		}
		// While the job completes, its list contains the nodes whose epilogs have not ended.
		nodes, err := conf.Expand(f[2])
		if err != nil {
			return false, fmt.Errorf("squeue: its nodes: %w", err)
		}
		for _, n := range nodes {
			if n == node {
				return false, nil
			}
		}
		return true, nil
	}
	return true, nil
}

// remove ends the processes of the job and removes its cgroups and its directory.
func (j jobFolder) remove() error {
	if err := j.end(); err != nil {
		return err
	}
	if j.removeCgroups(killed) != "" {
		if err := os.WriteFile(j.leftPath(), fmt.Appendln(nil, j.uid), 0o600); err != nil {
			return err
		}
	}
	run := filepath.Join(j.path(), "run")
	// nearmetal's own file system, and any that a user mounted over it by FUSE. They disappear when the last process
	// has closed them.
	for range 64 {
		if unix.Unmount(run, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) != nil {
			break
		}
	}
	entries, err := os.ReadDir(j.path())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if bad := os.Remove(filepath.Join(j.path(), e.Name())); bad != nil && !errors.Is(bad, fs.ErrNotExist) {
			err = errors.Join(err, bad)
		}
	}
	if err == nil {
		err = os.Remove(j.path())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its epilog has removed it in the meantime
	}
	return err
}
