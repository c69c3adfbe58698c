package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/isolate"
)

// attackers are those who start clusters: root, and a user.
func attackers(t *testing.T) map[string]func(args ...string) *exec.Cmd { return attackersOf(t, 65534) }

// attackersOf is attackers with the user of that number.
func attackersOf(t *testing.T, uid int) map[string]func(args ...string) *exec.Cmd {
	a := newAccount(t, uid)
	return map[string]func(args ...string) *exec.Cmd{
		"root": func(args ...string) *exec.Cmd { return command(t, args...) },
		"user": func(args ...string) *exec.Cmd {
			if args[0] == "up" {
				args = append(args, a.kernel(t)...)
			}
			return a.command(t, args...)
		},
	}
}

// Root of a guest reads what is the host's and other users' through the export of /, and aims at a service on
// the host's loopback.
func TestGuestAgainstHost(t *testing.T) {
	// Another user's file, in /tmp itself, and a socket in his runtime directory.
	other := filepath.Join("/tmp", fmt.Sprint("nm-other-", os.Getpid()))
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(other+"/file", []byte("secret"), 0o644), os.Chown(other, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	closed, err := net.Listen("tcp", "0.0.0.0:0") // the loopback's, too
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	port := closed.Addr().(*net.TCPAddr).Port
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, isolation := range []string{"standard", "strict"} {
		t.Run(isolation, func(t *testing.T) { guestAgainstHost(t, isolation, other, port, open) })
	}
	closed.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond))
	if c, err := closed.Accept(); err == nil {
		c.Close()
		t.Error("a service on the host's loopback was reached")
	}
}

// guestAgainstHost has VMs of root's and of a user's attack: other is another user's directory, port that of a closed
// service, open one that the VMs may reach.
func guestAgainstHost(t *testing.T, isolation, other string, port int, open net.Listener) {
	file := filepath.Join(top, "attack.yaml")
	text := fmt.Sprintf("isolation: "+isolation+"\nshares: [{path: /, target: /host, mode: ro}]\nnetwork: {hostPorts: [%d]}\n", open.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for who, do := range attackers(t) {
		t.Run(who, func(t *testing.T) {
			finish(t, do("up", "--name", "attack-"+who, "--memory", "512MiB", "-f", file), "").want(t, 0)
			defer func() { finish(t, do("down", "attack-"+who), "") }()
			r := finish(t, do("ps", "attack-"+who, "--json"), "").want(t, 0)
			var cluster struct{ VMs []struct{ PID int } }
			if err := json.Unmarshal([]byte(r.out), &cluster); err != nil || len(cluster.VMs) != 1 {
				t.Fatalf("%v: %s", err, r.out)
			}
			qemu := cluster.VMs[0].PID
			fi, err := os.Stat(fmt.Sprint("/proc/", qemu))
			if err != nil {
				t.Fatal(err)
			}
			uid := int(fi.Sys().(*syscall.Stat_t).Uid)
			own, err := os.MkdirTemp("/tmp", "nm-own-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(own)
			if err := errors.Join(os.WriteFile(own+"/file", []byte("mine"), 0o644), os.Chown(own, uid, uid), os.Chmod(own, 0o755)); err != nil {
				t.Fatal(err)
			}
			base := runtime
			if who == "user" {
				base = filepath.Join(top, "run-65534")
			}
			// One script tries all: each command of its own would take a second of an emulated VM.
			script := "reach() { test ! -e \"$1\" || echo \"reached $1\"; }\n"
			for _, path := range []string{
				fmt.Sprintf("/proc/%d/environ", qemu), fmt.Sprintf("/proc/%d/root/etc/passwd", qemu), "/proc/1/cmdline", "/sys/kernel/notes",
				"/dev/null", base + "/attack-" + who + "/record.json", base + "/attack-" + who + "/control.sock", other + "/file",
			} {
				if _, err := os.Lstat(path); err != nil && !(isolation == "strict" && strings.HasSuffix(path, "/root/etc/passwd")) {
					t.Fatalf("the attack aims at nothing: %v", err)
				}
				script += "reach /host" + path + "\n"
			}
			script += "reach " + other + "\nls -A /host/proc /host/sys /host/dev /host/run | grep -v : | grep . && echo reached folders\n"
			for _, aim := range []string{"10.0.2.2", "10.0.2.77", "10.0.2.3"} {
				script += fmt.Sprintf("(exec 3<>/dev/tcp/%s/%d) 2>/dev/null && echo reached %[1]s\n", aim, port)
			}
			script += fmt.Sprintf("(exec 3<>/dev/tcp/10.0.2.2/%d) && echo connected\n", open.Addr().(*net.TCPAddr).Port)
			// What is the user's is there, made after the VM's start too, and files have their owners.
			script += "cat " + own + "/file /host" + own + "/file; stat -c %u /host/etc/passwd /etc/passwd\n"
			owner := "0"
			if isolation == "strict" && who == "user" {
				owner = "65534" // in a user namespace there is no root
			}
			r = finish(t, do("exec", "-c", "attack-"+who, "--as-root", "--", "bash", "-c", script), "").want(t, 0)
			if want := "connected\nminemine" + owner + "\n" + owner + "\n"; r.out != want {
				t.Errorf("the guest says\n%s%s\nwant\n%s", r.out, r.err, want)
			}
			if isolation == "strict" {
				inJail(t, qemu, uid)
			}
		})
	}
}

// inJail checks that QEMU is in namespaces of its own, without rights, under the filter of system calls, and sees no file
// but its own.
func inJail(t *testing.T, qemu, uid int) {
	t.Helper()
	for _, ns := range []string{"mnt", "pid", "ipc", "net"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + ns)
		its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", qemu, ns))
		if err := errors.Join(err1, err2); err != nil || ours == its {
			t.Errorf("QEMU is in our namespace %s (%v)", its, err)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", qemu))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", fmt.Sprintf("Uid:\t%d\t", uid)} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%q is not in %s", want, status)
		}
	}
	root := fmt.Sprintf("/proc/%d/root", qemu)
	for _, path := range []string{"/etc/passwd", "/home", "/root", "/run", "/tmp", "/var", "/bin/sh", "/usr/bin/sh", "/dev/shm", "/sys/kernel"} {
		if _, err := os.Lstat(root + path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("QEMU sees %s: %v", path, err)
		}
	}
	if _, err := os.Lstat(root + "/dev/null"); err != nil {
		t.Error(err)
	}
}

// A cluster in jails does what others do: two VMs, a share that is written, an MPI launcher's way back; and nothing is
// left of it when its owner is killed.
func TestStrict(t *testing.T) {
	for who, do := range attackers(t) {
		t.Run(who, func(t *testing.T) {
			name := "strict-" + who
			up := do("up", "--name", name, "--vms", "2", "--memory", "384MiB", "--isolation", "strict", "--root-writes")
			share := up.Dir
			finish(t, up, "").want(t, 0)
			defer func() { finish(t, do("down", name), "") }()
			finish(t, do("exec", "-c", name, "--all", "--", "sh", "-c", "cd "+share+" && mkdir -p a b && hostname >a/$(hostname) && mv a/$(hostname) b/ && cat b/$(hostname)"), "").want(t, 0, "vm0: vm0", "vm1: vm1")
			finish(t, do("exec", "-c", name, "--vm", "vm0", "--", "bash", "-c", "exec 3<>/dev/tcp/vm1/9"), "").want(t, 1, "refused") // by vm1
			finish(t, do("verify", name), "").want(t, 0)
			r := finish(t, do("ps", name, "--json"), "").want(t, 0)
			var cluster struct {
				Owner int
				VMs   []struct{ PID int }
			}
			if err := json.Unmarshal([]byte(r.out), &cluster); err != nil || len(cluster.VMs) != 2 || cluster.Owner < 2 {
				t.Fatalf("%v: %s", err, r.out)
			}
			if err := syscall.Kill(cluster.Owner, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for _, vm := range cluster.VMs {
				fd, err := unix.PidfdOpen(vm.PID, 0)
				if err == unix.ESRCH {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60000); n != 1 {
					t.Errorf("process %d outlives its owner: %v", vm.PID, err)
				}
				unix.Close(fd)
			}
			finish(t, do("ps"), "").want(t, 0, "removed what cluster "+name)
		})
	}
}

// Root's VMs write to what is shared where that is asked for, and not else.
func TestRootWrites(t *testing.T) {
	needsRoot(t)
	without := func(args ...string) *exec.Cmd {
		cmd := command(t, args...)
		cmd.Env = append(os.Environ(), "NEARMETAL_ROOT_WRITES=0")
		return cmd
	}
	r := finish(t, without("run", "--no-share", "--share", "/opt", "--memory", "512MiB", "true"), "").want(t, 125, "--root-writes")
	oneLine(t, r)
	cmd := without("run", "--memory", "512MiB", "--", "sh", "-c", "echo x >made; test ! -e made && echo unwritten")
	finish(t, cmd, "").want(t, 0, "unwritten", "note: running as root")
	cmd = without("run", "--root-writes", "--memory", "512MiB", "--", "sh", "-c", "echo x >made")
	finish(t, cmd, "").want(t, 0)
	if _, err := os.Stat(filepath.Join(cmd.Dir, "made")); err != nil {
		t.Error(err)
	}
}

// The limits of isolation: strict, tried where cgroups are of version 2: in a VM, whatever this host has.
func TestLimitsInVM(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	for name, tests := range map[string]string{"isolate": "host/isolate", "limits": "cluster/limits"} {
		if out, err := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, name), "nearmetal/internal/"+tests).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	script := `mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup &&
		echo "+memory +pids +cpu +io" >cgroup.subtree_control && cd ` + dir + ` &&
		./isolate -test.v -test.run "^TestGroup" && ./limits -test.v -test.run "^TestGroup"`
	r := finish(t, command(t, "run", "--memory", "768MiB", "--no-share", "--share", dir+":ro", "--", "unshare", "-m", "sh", "-c", script), "").want(t, 0)
	for _, name := range []string{"TestGroupProcesses", "TestGroupMemory", "TestGroupJournaled"} {
		if !strings.Contains(r.out, "--- PASS: "+name) {
			t.Errorf("%s did not pass:\n%s", name, r.out)
		}
	}
}

// Where a host lacks what isolation: strict needs, no VM starts, and one line names it.
func TestStrictRefused(t *testing.T) {
	a := newAccount(t, 65534)
	// In a user namespace without room for another, and without capabilities, as where a host lets users make none.
	cmd := a.command(t, append([]string{"run", "--isolation", "strict", "--no-share", "--memory", "512MiB"}, append(a.kernel(t), "--", "true")...)...)
	script := `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"`
	cmd.Args = append([]string{"unshare", "-Ur", "sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	var err error
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		t.Fatal(err)
	}
	finish(t, cmd, "").want(t, 125, "isolation: strict is not available: this host lets you make no user namespace")
	if left, err := os.ReadDir(a.runtime); err != nil || len(left) > 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// What is extra is demanded by --strict.
	if _, missing, err := isolate.GroupParent(); err == nil && len(missing) == 0 && isolate.LandlockLacks() == "" {
		return // this host has all
	}
	r := finish(t, command(t, "run", "--isolation", "strict", "--strict", "--no-share", "--memory", "512MiB", "true"), "").want(t, 125, "placement: {strict: true}")
	oneLine(t, r)
}
