package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Checks that Owner returns a process's own users or an error, never those of a later process with its number.
func TestOwner(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	uid := os.Geteuid()
	if uid == 0 {
		uid = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65533}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if users, groups, err := p.Owner(); err != nil || users != (IDs{uid, uid, uid, uid}) || uid == 65534 && groups != (IDs{65533, 65533, 65533, 65533}) {
		t.Errorf("%v, %v, %v", users, groups, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, _, err := p.Owner(); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if p, err := Open(cmd.Process.Pid); err == nil {
		p.Close()
	} else if !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}
