package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	cpus "runtime"
	"strings"
	"syscall"
	"testing"
)

// What keeps a cluster from starting is said in one line, before anything boots, and
// leaves nothing.
func TestCannotStart(t *testing.T) {
	c := shared(t)
	empty := t.TempDir()
	for _, e := range []struct {
		name string
		args []string
		says []string
	}{
		{"no QEMU of that name", []string{"--qemu", "/nowhere/qemu"}, []string{"/nowhere/qemu", "no such file"}},
		{"a program that is no QEMU", []string{"--qemu", "/bin/true"}, []string{"/bin/true"}},
		{"no such kernel", []string{"--kernel", "/nowhere/vmlinuz"}, []string{"/nowhere/vmlinuz", "no such file"}},
		{"a file that is not a kernel", []string{"--kernel", "/etc/passwd"}, []string{"/etc/passwd", "not a Linux bzImage"}},
		{"no memory", []string{"--memory", "60TiB"}, []string{"memory", "short", "fits"}},
		{"no memory for all", []string{"--vms", "1000", "--memory", "64GiB"}, []string{"memory", "short"}},
		{"more vCPUs than CPUs", []string{"--vcpus", fmt.Sprint(cpus.NumCPU() + 1), "--strict"}, []string{"vCPUs", "short"}},
		{"no such share", []string{"--share", "/nowhere"}, []string{"share /nowhere", "no such file"}},
		{"a share that is a file", []string{"--share", "/etc/passwd"}, []string{"share /etc/passwd", "not a directory"}},
		{"no such root", []string{"--root", "/nowhere"}, []string{"root /nowhere", "no such file"}},
		{"a root without a system", []string{"--root", empty}, []string{"root " + empty, "/bin/sh"}},
		{"a name in use", []string{"--name", c}, []string{`"` + c + `"`, "nearmetal down " + c}},
	} {
		t.Run(e.name, func(t *testing.T) {
			for _, verb := range []string{"run", "up"} {
				args := append([]string{verb}, e.args...)
				if verb == "run" {
					args = append(args, "--", "true")
				}
				oneLine(t, nm(t, args...).want(t, 125, e.says...))
			}
		})
	}
	if r := nm(t, "ps").want(t, 0); strings.Count(r.out, "\n") != 2 {
		t.Errorf("clusters were left: %s", r.out)
	}
}

// The same of a host that lacks something, in a mount namespace where it does.
func TestHostLacks(t *testing.T) {
	boot := []string{"run", "--vms", "2", "--memory", "512MiB", "--", "true"}
	for _, e := range []struct {
		name, prepare string
		says          []string
	}{
		{"QEMU", `PATH=/nowhere:$PATH; for d in /usr/bin /usr/local/bin /bin; do
			for q in $d/qemu-system-x86_64 /usr/libexec/qemu-kvm; do test ! -e $q || mount --bind /dev/null $q; done; done`,
			[]string{"no QEMU", "install qemu-system-x86"}},
		{"kernels", "mount -t tmpfs none /boot", []string{"no kernel", "install", "linux-image"}},
		{"modules", "mount -t tmpfs none /lib/modules", []string{"no modules", "install"}},
		{"a module", `modules=$(mktemp -d); cp -a /lib/modules/. $modules; mount --bind $modules /lib/modules
			find $modules/ -name '9pnet_virtio.ko*' -delete; rm -rf $modules.x`,
			[]string{"9pnet_virtio"}},
		{"room in /dev/shm", "mount -t tmpfs -o size=4M none /dev/shm", []string{"/dev/shm has no room", "smaller region"}},
	} {
		t.Run(e.name, func(t *testing.T) {
			cmd := within(t, "-m", e.prepare, boot...)
			cmd.Env = append(cmd.Environ(), "TMPDIR="+t.TempDir())
			oneLine(t, finish(t, cmd, "").want(t, 125, e.says...))
		})
	}
}

// More vCPUs than the host has CPUs is slow, not wrong: a warning, unless --strict.
func TestMoreVCPUs(t *testing.T) {
	n := fmt.Sprint(cpus.NumCPU() + 1)
	r := finish(t, run(t, "--vcpus", n, "--", "nproc"), "").want(t, 0, n+"\n")
	var warned int
	for _, l := range strings.Split(r.err, "\n") {
		if strings.Contains(l, n+" vCPUs") {
			warned++
		}
	}
	if warned != 1 {
		t.Errorf("warned %d times: %s", warned, r.err)
	}
}

// A directory that its user may not write is shared read-only at most: an error where it was named, a
// line where it is only the working directory.
func TestShareOfAnother(t *testing.T) {
	a := newAccount(t, 65534)
	dir := filepath.Join(top, "roots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := a.command(t, append([]string{"run", "--share", dir, "true"}, a.kernel(t)...)...)
	oneLine(t, finish(t, cmd, "").want(t, 125, "share "+dir, "write"))
	cmd = a.command(t, append(append([]string{"run"}, a.kernel(t)...), "true")...)
	cmd.Dir = dir
	if r := finish(t, cmd, "").want(t, 0); !strings.Contains(r.err, "you may not write in "+dir) || !strings.Contains(r.err, "--share .:ro leaves this line out") {
		t.Errorf("no line says that %s is shared read-only: %q", dir, r.err)
	}
}

// Entries of the cache that were damaged are made anew, and the user learns of it.
func TestCorruptedCache(t *testing.T) {
	cache := t.TempDir()
	boot := func(args ...string) result {
		cmd := run(t, args...)
		cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+cache)
		return finish(t, cmd, "")
	}
	// What there is no room for is refused before a kernel is prepared.
	boot("--memory", "60TiB", "--", "true").want(t, 125)
	if made, _ := filepath.Glob(filepath.Join(cache, "nearmetal", "*initramfs*")); len(made) > 0 {
		t.Errorf("prepared for nothing: %q", made)
	}
	boot("--boot-timeout", "1ms", "--", "true").want(t, 125) // fills the cache, and ends before a VM is ready
	damaged := 0
	err := filepath.Walk(cache, func(path string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		damaged++
		_, err = f.WriteAt([]byte("damage"), fi.Size()/2)
		return err
	})
	if err != nil || damaged < 2 {
		t.Fatalf("%d entries, %v", damaged, err)
	}
	r := boot("--", "echo", "it", "booted").want(t, 0, "it booted")
	if !strings.Contains(r.err, "corrupted") {
		t.Errorf("not said: %q", r.err)
	}
	if r := boot("--boot-timeout", "1ms", "--", "true").want(t, 125); strings.Contains(r.err, "corrupted") {
		t.Errorf("said again: %q", r.err)
	}
}

// What a cluster leaves whose owner is killed is removed by the next command, which says so.
func TestOwnerKilled(t *testing.T) {
	c := up(t, "--no-share")
	r := nm(t, "ps", c, "--json").want(t, 0)
	var rec struct {
		Owner int
		VMs   []struct{ PID int }
	}
	if err := json.Unmarshal([]byte(r.out), &rec); err != nil || rec.Owner == 0 || len(rec.VMs) != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	if err := syscall.Kill(rec.Owner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of QEMU", func() bool { return syscall.Kill(rec.VMs[0].PID, 0) != nil })
	nm(t, "exec", "-c", c, "true").want(t, 125, `no cluster "`+c+`" runs`)
	r = nm(t, "ps").want(t, 0, "removed what cluster "+c+" left when its owner was killed")
	if strings.Contains(r.out, c) {
		t.Errorf("still listed: %s", r.out)
	}
	if r := nm(t, "ps").want(t, 0); strings.Contains(r.err, "removed") {
		t.Errorf("said again: %s", r.err)
	}
}

// Commands about clusters and VMs that are not there.
func TestNotThere(t *testing.T) {
	c := shared(t)
	for _, e := range []struct {
		status int
		says   string
		args   []string
	}{
		{125, `no cluster "nope" runs`, []string{"exec", "-c", "nope", "true"}},
		{125, `no cluster "nope" runs`, []string{"shell", "nope"}},
		{125, `no cluster "nope" runs`, []string{"logs", "nope"}},
		{125, `no cluster "nope" runs`, []string{"hostfile", "nope"}},
		{125, `no cluster "nope" runs`, []string{"env", "nope"}},
		{125, `no cluster "nope" runs`, []string{"down", "nope"}},
		{125, `no cluster "nope" runs`, []string{"cp", "-c", "nope", "/etc/passwd", "vm0:/tmp/"}},
		{125, `has no VM "vm9": it has vm0, vm1`, []string{"exec", "-c", c, "--vm", "vm9", "true"}},
		{125, `has no VM "vm9": it has vm0, vm1`, []string{"shell", c, "--vm", "vm9"}},
		{125, `has no VM "vm9": it has vm0, vm1`, []string{"logs", c, "--vm", "vm9"}},
		{125, `has no VM "vm9": it has vm0, vm1`, []string{"cp", "-c", c, "vm9:/etc/passwd", "."}},
		{125, "nowhere: no such file", []string{"cp", "-c", c, "nowhere", "vm0:/tmp/"}},
		{125, "must be absolute", []string{"cp", "-c", c, "/etc/passwd", "vm0:tmp"}},
		{125, "not a terminal", []string{"exec", "-c", c, "-t", "true"}},
		{2, "is not a cluster's name", []string{"up", "--name", "a/b"}},
		{125, "is not a cluster's name", []string{"down", "a b"}},
		{2, "a/b is a VM, and down is about a whole cluster", []string{"down", "a/b"}},
		{2, "no host", []string{"rsh"}},
	} {
		t.Run(strings.Join(e.args, " "), func(t *testing.T) {
			oneLine(t, nm(t, e.args...).want(t, e.status, e.says))
		})
	}
}
