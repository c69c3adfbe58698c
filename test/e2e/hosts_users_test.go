package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loginName is an ordinary user who may log in to the hosts of a bed, once login has made it; loginHome is its home.
func loginName() string { return fmt.Sprintf("nmt%d", os.Getpid()) }
func loginHome() string { return filepath.Join(top, "login") }

// login makes that user, and returns its name. On each host it has directories of its own.
func (b *bed) login() string {
	t := b.t
	t.Helper()
	needs(t, "useradd")
	name, home := loginName(), loginHome()
	if out, err := exec.Command("useradd", "--no-log-init", "-K", "MAIL_DIR=/nonexistent", "-m", "-d", home, "-s", "/bin/sh", "-p", "*", name).CombinedOutput(); err != nil {
		t.Fatalf("useradd: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("userdel", "-rf", name).CombinedOutput(); err != nil {
			t.Errorf("userdel: %v: %s", err, out)
		}
	})
	key, err := os.ReadFile(b.path("user.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(home+"/.ssh", 0o755), os.WriteFile(home+"/.ssh/authorized_keys", key, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, host := range hostNames {
		if out, err := exec.Command("install", "-d", "-m", "700", "-o", name, home+"/"+host, home+"/"+host+"/run").CombinedOutput(); err != nil {
			t.Fatalf("install: %v: %s", err, out)
		}
	}
	return name
}

// The VMs of an ordinary user on several hosts see nothing of these hosts' own through what is exported. The process that
// owns them knows a secret: its memory and files are closed to others.
func TestHostsCovers(t *testing.T) {
	other := filepath.Join("/tmp", fmt.Sprint("nm-other-", os.Getpid()))
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(other+"/file", []byte("secret"), 0o644), os.Chown(other, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	b := newBed(t)
	user := b.login()
	for _, isolation := range []string{"auto", "standard", "strict"} {
		file := filepath.Join(t.TempDir(), isolation+".yaml")
		if err := os.WriteFile(file, []byte("isolation: "+isolation+"\nshares: [{path: /, target: /host, mode: ro}]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := b.nm(append([]string{"up", "--name", isolation, "-f", file, "--hosts", user + "@alpha," + user + "@beta", "--vms", "2", "--vcpus", "1"}, small...)...).want(t, 0)
		if strings.Contains(r.err, "as you do") {
			t.Errorf("isolation %s: %s", isolation, r.err)
		}
		script := "for f in /proc/1/cmdline /sys/kernel/notes /dev/null " + other + "/file; do test ! -e /host$f || echo reached $f; done\n" +
			"ls -A /host/proc /host/sys /host/dev /host/run | grep -v : | grep . && echo reached folders; cmp /host/etc/passwd /etc/passwd && echo looked"
		if r := b.nm("exec", "--all", isolation, "--", "sh", "-c", script).want(t, 0); len(r.out) != len("vm0: looked\nvm1: looked\n") {
			t.Errorf("isolation %s: %s%s", isolation, r.out, r.err)
		}
		for _, host := range hostNames {
			parts := b.running(host, "host-part")
			if len(parts) == 0 {
				t.Errorf("%s runs no part", host)
			}
			for _, pid := range parts {
				cmd := exec.Command("setpriv", "--reuid", user, "--clear-groups", "sh", "-c", fmt.Sprintf("cat /proc/%d/maps /proc/%[1]d/environ", pid))
				if out, err := cmd.CombinedOutput(); err == nil || strings.Count(string(out), "ermission denied") != 2 {
					line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
					t.Errorf("the user reads of %q: %v, %.200s", line, err, out)
				}
			}
		}
		b.nm("down", isolation).want(t, 0)
	}
	b.quiet(everyDir...)
}
