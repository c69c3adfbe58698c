package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// account is a user of this host without privileges: a number is all it takes.
type account struct {
	uid           int
	home, runtime string
}

var program struct {
	sync.Once
	path string // of a nearmetal that every user may run
	err  error
}

// newAccount makes the user's directories.
func newAccount(t *testing.T, uid int) *account {
	t.Helper()
	needsRoot(t)
	program.Do(func() {
		dir := filepath.Join(top, "bin")
		program.path = filepath.Join(dir, "nearmetal")
		text, err := os.ReadFile(nearmetal)
		if err == nil {
			err = os.Mkdir(dir, 0o755)
		}
		if err == nil {
			err = os.WriteFile(program.path, text, 0o755)
		}
		program.err = err
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	a := &account{uid, filepath.Join(top, fmt.Sprint("home-", uid)), filepath.Join(top, fmt.Sprint("run-", uid))}
	for _, dir := range []string{a.home, a.runtime} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// command prepares a nearmetal command of the user, in its home.
func (a *account) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, args...)
	cmd.Path, cmd.Dir = program.path, a.home
	cmd.Env = []string{"HOME=" + a.home, "NEARMETAL_RUNTIME_DIR=" + a.runtime, "PATH=" + os.Getenv("PATH"), fmt.Sprint("USER=u", a.uid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.uid)}}
	return cmd
}

// kernel returns the flags with which the user can start a kernel: none where that in /boot
// can be read (Debian), a copy's elsewhere (Ubuntu).
func (a *account) kernel(t *testing.T) []string {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	path := "/boot/vmlinuz-" + strings.TrimSpace(string(release))
	if _, err := os.Stat(path); err != nil {
		found, _ := filepath.Glob("/boot/vmlinuz-*")
		if len(found) == 0 {
			missing(t, "a kernel in /boot")
		}
		path = found[len(found)-1]
	}
	if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o004 != 0 {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(a.home, filepath.Base(path))
	if err := os.WriteFile(own, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"--kernel", own}
}

// Two users start clusters of the same name at the same time. Each has its own, and
// neither's VMs can do what the user could not.
func TestTwoUsers(t *testing.T) {
	users := []*account{newAccount(t, 65534), newAccount(t, 65533)}
	var wg sync.WaitGroup
	var started [2]result
	for i, a := range users {
		cmd := a.command(t, append([]string{"up", "--name", "same", "--region", "1MiB", "--memory", "512MiB"}, a.kernel(t)...)...)
		t.Cleanup(func() { finish(t, a.command(t, "down", "--all"), "") })
		wg.Add(1)
		go func() {
			defer wg.Done()
			out, err := cmd.Output()
			started[i].out = string(out)
			if e, ok := err.(*exec.ExitError); ok {
				started[i].err = string(e.Stderr)
			}
			started[i].code = cmd.ProcessState.ExitCode()
		}()
	}
	wg.Wait()
	for i, a := range users {
		started[i].want(t, 0, "same\n")
		r := finish(t, a.command(t, "ps", "--json"), "").want(t, 0)
		var list []struct {
			Name  string
			Owner int
			VMs   []struct{ PID int }
		}
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 1 || len(list[0].VMs) != 1 {
			t.Fatalf("%v: %s", err, r.out)
		}
		for _, pid := range []int{list[0].Owner, list[0].VMs[0].PID} {
			fi, err := os.Stat(fmt.Sprint("/proc/", pid))
			if err != nil || int(fi.Sys().(*syscall.Stat_t).Uid) != a.uid {
				t.Errorf("process %d is not the user's: %v", pid, err)
			}
		}
		r = finish(t, a.command(t, "exec", "--", "sh", "-c",
			"id -u; id -g; id -G; pwd; stat -Lc %u:%a /dev/nearmetal/region; echo mine >made"), "").want(t, 0)
		if want := fmt.Sprintf("%d\n%[1]d\n%[1]d\n%s\n%[1]d:600\n", a.uid, a.home); r.out != want {
			t.Errorf("got %q, want %q", r.out, want)
		}
		fi, err := os.Stat(filepath.Join(a.home, "made"))
		if err != nil || int(fi.Sys().(*syscall.Stat_t).Uid) != a.uid || fi.Size() != 5 {
			t.Errorf("what the VM wrote: %v, %v", fi, err)
		}
		// root of the VM is no more than the user on the host.
		finish(t, a.command(t, "exec", "--as-root", "--", "sh", "-c", "id -u; cat /etc/shadow"), "").want(t, 1, "0\n", "Permission denied")
		other := a.command(t, "exec", "--", "true")
		other.Env = append(other.Env, "NEARMETAL_RUNTIME_DIR="+users[1-i].runtime)
		finish(t, other, "").want(t, 125, "belongs to another user")
		finish(t, a.command(t, "down"), "").want(t, 0)
	}
}

// A user whose kernel is closed (Ubuntu's are 0600) learns how to open it.
func TestUnreadableKernel(t *testing.T) {
	a := newAccount(t, 65534)
	kernels, _ := filepath.Glob("/boot/vmlinuz-*")
	if len(kernels) == 0 {
		missing(t, "a kernel in /boot")
	}
	closed := filepath.Join(top, filepath.Base(kernels[0]))
	text, err := os.ReadFile(kernels[0])
	if err == nil {
		err = os.WriteFile(closed, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := finish(t, a.command(t, "run", "--kernel", closed, "true"), "").want(t, 125, "chmod 0644 "+closed)
	oneLine(t, r)
}
