package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"nearmetal/test/slurm/bed"
)

// doingScript prints of each program in a VM, and of its threads, the state and what each waits for in the kernel; and how much
// the TCP connections hold, which PMI and PMIx go over. It is one program: a VM may be slow when one asks.
const doingScript = `cd /proc && exec grep -as "" loadavg net/tcp [0-9]*/cmdline [0-9]*/task/*/stat [0-9]*/task/*/wchan [0-9]*/task/*/syscall`

var (
	// Only lines of several VMs have a VM's name before them.
	withCommand = regexp.MustCompile(`(?m)^((?:\S+: )?\d+/)cmdline:.`)
	ofProcess   = regexp.MustCompile(`^(?:\S+: )?\d+/`)
)

// programs leaves out of doingScript's lines what a VM's kernel runs for itself: that has no command line.
func programs(lines string) string {
	named := map[string]bool{}
	for _, m := range withCommand.FindAllStringSubmatch(lines, -1) {
		named[m[1]] = true
	}
	var kept strings.Builder
	for _, line := range strings.SplitAfter(lines, "\n") {
		if p := ofProcess.FindString(line); p == "" || named[p] {
			kept.WriteString(strings.ReplaceAll(line, "\x00", " "))
		}
	}
	return kept.String()
}

// doing is what the VMs of all jobs do, for whoever has to find out why a test waited in vain.
func doing() string {
	var s strings.Builder
	dirs, _ := filepath.Glob(filepath.Join(state, "*.*", "run"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		owner := info.Sys().(*syscall.Stat_t)
		cmd := exec.Command("timeout", "60", filepath.Join(bin, "nearmetal"), "exec", "--all", "--as-root", "job", "--", "sh", "-c", doingScript)
		cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "NEARMETAL_RUNTIME_DIR=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(&s, "== what the VMs of %s do (%v)\n%s", dir, err, programs(string(out)))
	}
	return s.String()
}

// What is said of a job that waits names the program that waits, and where.
func TestDoing(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	cmd := a.command(t, "srun", "-w", "n1", "-n1", "--mem=1500", "--vm=vms=1,vcpus=1,memory=384MiB", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waiting := regexp.MustCompile(`(?m)^\d+/cmdline:sleep 1000 $(?s:.*)^\d+/task/\d+/wchan:\w*nanosleep`)
	var said string
	if err := bed.Await("sleep in the VM", func() bool { said = doing(); return waiting.MatchString(said) }); err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
	must(t, "scancel", "-u", a.name)
	cmd.Wait()
}
