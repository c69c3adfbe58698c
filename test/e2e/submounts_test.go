package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// File systems that are mounted below what a VM sees: two in memory and a read-only view of a folder in the share, one
// in the root, and one in a second share, which is read-only.

// below is a folder in this host's root, and held a share that is only read.
func (o *odd) below() string { return filepath.Join("/opt", o.name()) }
func (o *odd) held() string  { return filepath.Join(top, "held-"+o.kind) }

// mountBelow makes them, before the VMs start.
func (o *odd) mountBelow() {
	ram := func(dir, text string) error {
		return errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("none", dir, "tmpfs", 0, "size=1m,mode=1777"),
			os.WriteFile(filepath.Join(dir, "f"), []byte(text+"\n"), 0o644))
	}
	view := o.at("view")
	err := errors.Join(ram(o.at("ram1"), "one"), ram(o.at("ram2"), "two"), ram(o.below(), "below"), ram(filepath.Join(o.held(), "ram"), "held"),
		os.Mkdir(o.at("seen"), 0o777), os.WriteFile(o.at("seen/f"), []byte("seen\n"), 0o644), os.Mkdir(view, 0o777),
		os.MkdirAll(o.at("later/in"), 0o777), unix.Mount(o.at("seen"), view, "", unix.MS_BIND, ""),
		unix.Mount("", view, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		// What is mounted below a shared mount comes to all who have a copy of it. systemd makes all mounts shared.
		unix.Mount(o.at("later"), o.at("later"), "", unix.MS_BIND, ""), unix.Mount("", o.at("later"), "", unix.MS_SHARED, ""))
	o.t.Cleanup(func() {
		for _, dir := range []string{o.at("ram1"), o.at("ram2"), o.at("view"), o.at("later/in"), o.at("later"), o.below(), filepath.Join(o.held(), "ram")} {
			unix.Unmount(dir, unix.MNT_DETACH)
		}
		os.Remove(o.below())
		os.RemoveAll(o.held())
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// unmountBelow takes away what is in the share itself.
func (o *odd) unmountBelow() {
	for _, name := range []string{"ram1", "ram2", "view", "later/in", "later"} {
		if err := unix.Unmount(o.at(name), unix.MNT_DETACH); err != nil {
			o.t.Error(name, ": ", err)
		}
	}
}

// submounts has a VM look at them.
func (o *odd) submounts() {
	o.in("vm0", "cat ram1/f ram2/f view/f "+o.below()+"/f "+o.held()+"/ram/f").want(o.t, 0, "one\ntwo\nseen\nbelow\nheld\n")
	// Two files in memory have the same number, each in its file system. By virtiofs all is one.
	ino := func(name string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(o.at(name), &st); err != nil {
			o.t.Fatal(err)
		}
		return st.Ino
	}
	if ino("ram1/f") != ino("ram2/f") {
		o.t.Fatal("the files in memory have different numbers: the test shows nothing")
	}
	same := map[string]string{"9p": "two files", "virtiofs": "one file"}[o.kind]
	o.in("vm0", "if test ram1/f -ef ram2/f; then echo one file; else echo two files; fi").want(o.t, 0, same)
	o.in("vm1", "echo more >>ram2/f && cat ram1/f ram2/f").want(o.t, 0, "one\ntwo\nmore\n")
	if got := read(o.at("ram1/f")) + read(o.at("ram2/f")); got != "one\ntwo\nmore\n" {
		o.t.Errorf("on the host: %q", got)
	}
	// Read-only there is so in a VM, for its root, too. What is written below the VM's root stays in the VM.
	refused := o.asRoot("vm0", "for f in view/f "+o.held()+"/ram/f "+o.held()+"/ram/g; do echo no >$f || echo refused; done").want(o.t, 0)
	if n := strings.Count(refused.out, "refused\n"); n != 3 || strings.Count(refused.err, "Read-only file system") != 3 {
		o.t.Errorf("%d of 3 refused: %s%s", n, refused.out, refused.err)
	}
	o.asRoot("vm0", "echo no >"+o.below()+"/f && cat "+o.below()+"/f").want(o.t, 0, "no\n")
	if got := read(o.at("seen/f")) + read(o.below()+"/f") + read(o.held()+"/ram/f"); got != "seen\nbelow\nheld\n" {
		o.t.Errorf("on the host: %q", got)
	}
	// One that is mounted while the VMs run is there at the next command.
	if err := errors.Join(unix.Mount("none", o.at("later/in"), "tmpfs", 0, "size=1m,mode=1777"), os.WriteFile(o.at("later/in/f"), []byte("later\n"), 0o644)); err != nil {
		o.t.Fatal(err)
	}
	o.in("vm0", "cat later/in/f").want(o.t, 0, "later\n")
}

// asRoot is in as root of the VM.
func (o *odd) asRoot(vm, script string) result {
	o.t.Helper()
	return finish(o.t, command(o.t, "exec", "--as-root", o.name()+"/"+vm, "--", "env", "-C", o.dir, "sh", "-c", script), "")
}
