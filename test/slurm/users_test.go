package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// account is an ordinary user that exists for these tests: Slurm looks names up.
type account struct {
	name, home string
	uid, gid   int
}

var accounts struct {
	sync.Mutex
	list []*account
}

// newAccount returns user number n (1 or 2), made if need be.
func newAccount(t *testing.T, n int) *account {
	t.Helper()
	accounts.Lock()
	defer accounts.Unlock()
	name := fmt.Sprintf("nmtest%d-%d", n, os.Getpid())
	for _, a := range accounts.list {
		if a.name == name {
			return a
		}
	}
	a := &account{name: name, home: filepath.Join(filepath.Dir(bin), name)}
	if out, err := exec.Command("useradd", "--no-log-init", "-K", "MAIL_DIR=/nonexistent", "-m", "-d", a.home, "-s", "/bin/sh", name).CombinedOutput(); err != nil {
		t.Fatalf("useradd: %v: %s", err, out)
	}
	accounts.list = append(accounts.list, a)
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	a.uid, _ = strconv.Atoi(u.Uid)
	a.gid, _ = strconv.Atoi(u.Gid)
	if err := os.Chmod(a.home, 0o700); err != nil {
		t.Fatal(err)
	}
	return a
}

func removeUsers() {
	accounts.Lock()
	defer accounts.Unlock()
	for _, a := range accounts.list {
		exec.Command("userdel", "-r", a.name).Run()
	}
	accounts.list = nil
}

// command prepares a command of the user, in its home.
func (a *account) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, name, args...)
	cmd.Dir, cmd.Env = a.home, cluster.Environ(a.name, a.home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
	return cmd
}

// run runs a command of the user.
func (a *account) run(t *testing.T, name string, args ...string) result {
	t.Helper()
	return finish(t, a.command(t, name, args...), "")
}
