package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is rare in files, by 9p and by virtiofs, in two VMs and on the host at once. docs/files.md says what holds.
func TestOddFiles(t *testing.T) {
	if os.Getenv("NEARMETAL_FILES") == "" {
		t.Skip("two minutes: make test-files")
	}
	needsRoot(t)
	needs(t, "python3", "flock")
	needsVirtiofsd(t)
	for _, kind := range []string{"9p", "virtiofs"} {
		t.Run(kind, func(t *testing.T) {
			o := odd{t: t, kind: kind}
			cmd := o.up("up", "--name", o.name(), "--vms", "2", "--memory", "512MiB", "-f", filepath.Join(top, "odd-"+kind+".yaml"))
			write(t, top, "odd-"+kind+".yaml", fmt.Sprintf("files: %s\nshares: [{path: %s}, {path: %s, mode: ro}]\n", kind, o.dir, o.held()))
			o.fullShare()
			o.mountBelow()
			finish(t, cmd, "").want(t, 0)
			t.Cleanup(func() { nm(t, "down", o.name()).want(t, 0) })
			o.badNames()
			o.sparse()
			o.hardLinks()
			o.full()
			o.submounts()
			all := o.start("vm0", "vm0", "vm1", "host", "host")
			o.goingFolder(all[0])
			o.locks(all)
			o.exclusive(all)
			o.mappings(all[0], all[2])
			o.many()
			o.goneShare() // the last
		})
	}
}

// A share whose path is a loop of symbolic links is refused before a VM starts.
func TestLoopedShare(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"9p", "virtiofs", "auto"} {
		file := write(t, dir, kind+".yaml", "files: "+kind+"\nshares: [{path: "+dir+"/loop}]\n")
		oneLine(t, nm(t, "run", "-f", file, "--", "true").want(t, 125, dir+"/loop", "too many levels of symbolic links"))
	}
	file := write(t, dir, "root.yaml", "root: "+dir+"/loop\n")
	oneLine(t, nm(t, "run", "-f", file, "--", "true").want(t, 125, dir+"/loop", "too many levels of symbolic links"))
}

// odd tries what is rare in dir, a share of two VMs.
type odd struct {
	t    *testing.T
	kind string
	dir  string
}

func (o *odd) name() string { return "odd-" + o.kind }

func (o *odd) up(args ...string) *exec.Cmd {
	cmd := command(o.t, args...)
	o.dir = cmd.Dir
	return cmd
}

func (o *odd) at(name string) string { return filepath.Join(o.dir, name) }

// in runs a shell script in a VM, in the share.
func (o *odd) in(vm, script string) result {
	o.t.Helper()
	return finish(o.t, o.command(vm, "sh", "-c", script), "")
}

func (o *odd) command(vm string, args ...string) *exec.Cmd {
	return command(o.t, append([]string{"exec", o.name() + "/" + vm, "--"}, append([]string{"env", "-C", o.dir}, args...)...)...)
}

// python is an interpreter of Python's that runs in a VM or on the host, in the share, and does what do says.
type python struct {
	t     *testing.T
	where string
	in    io.WriteCloser
	out   *bufio.Scanner
}

const interpreter = `
import fcntl, json, mmap, os, sys
for line in sys.stdin:
	out = ""
	try: exec(json.loads(line))
	except Exception as e: out = type(e).__name__
	print(out, flush=True)
`

// start starts interpreters where they are asked for: "host", or a VM. They end with the test.
func (o *odd) start(where ...string) (all []*python) {
	o.t.Helper()
	for _, w := range where {
		cmd := o.command(w, "python3", "-c", interpreter)
		if w == "host" {
			cmd = exec.Command("python3", "-c", interpreter)
			cmd.Dir = o.dir
		}
		p := &python{t: o.t, where: w}
		out, err := cmd.StdoutPipe()
		if err == nil {
			p.in, err = cmd.StdinPipe()
		}
		cmd.Stderr = os.Stderr
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			o.t.Fatal(err)
		}
		p.out = bufio.NewScanner(out)
		o.t.Cleanup(func() { p.in.Close(); cmd.Wait() })
		all = append(all, p)
	}
	return all
}

// do runs statements that may set out, and returns it, or the name of an exception.
func (p *python) do(format string, args ...any) string {
	p.t.Helper()
	b, err := json.Marshal(fmt.Sprintf(format, args...))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		p.t.Fatal(p.where, ": ", err)
	}
	if !p.out.Scan() {
		p.t.Fatalf("%s ended at %q: %v", p.where, b, p.out.Err())
	}
	return p.out.Text()
}

// fullShare mounts a file system of one MiB in the share.
func (o *odd) fullShare() {
	full := o.at("full")
	if err := errors.Join(os.Mkdir(full, 0o777), unix.Mount("none", full, "tmpfs", 0, "size=1m,mode=1777")); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { unix.Unmount(full, unix.MNT_DETACH) })
}

// Names that are no UTF-8 are the same on both sides.
func (o *odd) badNames() {
	if err := os.WriteFile(o.at("caf\xe9"), []byte("odd"), 0o644); err != nil {
		o.t.Fatal(err)
	}
	o.in("vm0", `cat "$(printf 'caf\351')" && printf made >"$(printf '\377\376')"`).want(o.t, 0, "odd")
	if b, err := os.ReadFile(o.at("\xff\xfe")); err != nil || string(b) != "made" {
		o.t.Errorf("a name that is not UTF-8: %q, %v", b, err)
	}
}

// A sparse file of 8 GiB stays sparse; what is written at its end is there.
func (o *odd) sparse() {
	f, err := os.Create(o.at("sparse"))
	if err == nil {
		err = errors.Join(f.Truncate(8<<30), f.Close())
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.in("vm0", `test "$(stat -c %s sparse)" = 8589934592 && test "$(stat -c %b sparse)" -lt 100 && printf end >>sparse`).want(o.t, 0)
	var st unix.Stat_t
	if err := unix.Stat(o.at("sparse"), &st); err != nil || st.Size != 8<<30+3 || st.Blocks > 100 {
		o.t.Errorf("the sparse file has %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	o.in("vm1", "tail -c 3 sparse").want(o.t, 0, "end")
}

// Hard links are one file, on every side.
func (o *odd) hardLinks() {
	o.in("vm0", `echo one >a && ln a b && echo two >>b && stat -c '%h links' a && test a -ef b`).want(o.t, 0, "2 links")
	o.in("vm1", `cat a && test a -ef b`).want(o.t, 0, "one\ntwo\n")
	if b, err := os.ReadFile(o.at("a")); err != nil || string(b) != "one\ntwo\n" {
		o.t.Errorf("%q, %v", b, err)
	}
}

// A full file system is an error of the writer, and the rest of the share goes on.
func (o *odd) full() {
	o.in("vm0", `if head -c 4194304 /dev/zero >full/x; then echo written; fi; rm -f full/x; echo on >after && cat after`).
		want(o.t, 0, "No space left on device", "on\n")
}

// A folder that goes while a program in a VM is in it is gone there by virtiofs. By 9p, where QEMU goes by names, the program
// is then in the one that comes back under the name.
func (o *odd) goingFolder(vm *python) {
	create := func(text string) {
		if err := errors.Join(os.RemoveAll(o.at("going")), os.Mkdir(o.at("going"), 0o777), os.WriteFile(o.at("going/file"), []byte(text), 0o644)); err != nil {
			o.t.Fatal(err)
		}
	}
	create("old")
	if got := vm.do(`os.chdir("going"); out = open("file").read()`); got != "old" {
		o.t.Errorf("at first: %q", got)
	}
	create("new")
	got, want := vm.do(`out = os.listdir(".")`), map[string]string{"9p": "['file']", "virtiofs": "[]"}[o.kind]
	if got != want {
		o.t.Errorf("in a folder that went: %s, not %s", got, want)
	}
	vm.do("os.chdir(%q)", o.dir)
	// What a VM knows of a name it may keep for a second.
	until(o.t, "the new folder", func() bool { return vm.do(`out = open("going/file").read()`) == "new" })
}

// A lock of a VM's, by flock or fcntl, holds for the programs of that VM. Those of the other VM and of the host do not see it,
// nor the other way round.
func (o *odd) locks(all []*python) {
	for _, call := range []string{"flock", "lockf"} {
		take := "f = open('a', 'r+'); fcntl." + call + "(f, fcntl.LOCK_EX | fcntl.LOCK_NB); out = 'held'"
		for i, holder := range all {
			if got := holder.do("%s", take); got != "held" {
				o.t.Errorf("%s of %s, first: %s", call, holder.where, got)
			}
			for j, taker := range all {
				if i == j {
					continue
				}
				want := "held"
				if taker.where == holder.where {
					want = "BlockingIOError"
				}
				if got := taker.do("%s", take); got != want {
					o.t.Errorf("%s of %s while %s has it: %s, not %s", call, taker.where, holder.where, got, want)
				}
				taker.do("f.close()")
			}
			holder.do("f.close()")
		}
	}
}

// What is to be made once is made by one alone, whoever has seen before that it is not there.
func (o *odd) exclusive(all []*python) {
	for i := range all {
		for _, p := range all {
			if got := p.do("out = os.path.exists('once%d') or os.path.exists('alone%[1]d')", i); got != "False" {
				o.t.Errorf("%s: before it is made: %s", p.where, got)
			}
		}
		for j := range all {
			p, want := all[(i+j)%len(all)], "FileExistsError"
			if j == 0 {
				want = "made"
			}
			for _, how := range []string{"os.close(os.open('once%d', os.O_CREAT | os.O_EXCL))", "os.mkdir('alone%d')"} {
				if got := p.do(how+"; out = 'made'", i); got != want {
					o.t.Errorf("%s after %s: %s: %s, not %s", p.where, all[i].where, how, got, want)
				}
			}
		}
	}
}

// Two VMs write to different pages of a file that both have mapped: the file has both. Who opens it later reads both.
func (o *odd) mappings(vm0, vm1 *python) {
	if err := os.WriteFile(o.at("map"), bytes.Repeat([]byte{'.'}, 2<<12), 0o644); err != nil {
		o.t.Fatal(err)
	}
	// Each has seen all of it before.
	for _, vm := range []*python{vm0, vm1} {
		if got := vm.do(`mf = open("map", "r+b"); m = mmap.mmap(mf.fileno(), 8192); out = m[:].count(b".")`); got != "8192" {
			o.t.Errorf("%s: mapped: %s", vm.where, got)
		}
	}
	vm0.do(`m[:4096] = b"A" * 4096; m.flush()`)
	vm1.do(`m[4096:] = b"B" * 4096; m.flush()`)
	want := append(bytes.Repeat([]byte{'A'}, 1<<12), bytes.Repeat([]byte{'B'}, 1<<12)...)
	if b, err := os.ReadFile(o.at("map")); err != nil || !bytes.Equal(b, want) {
		o.t.Errorf("after both were flushed: %v, %d of A, %d of B", err, bytes.Count(b, []byte{'A'}), bytes.Count(b, []byte{'B'}))
	}
	// A mapping keeps what it has read.
	for vm, others := range map[*python]string{vm0: "B", vm1: "A"} {
		got := vm.do(`out = "%%d mapped" %% m[:].count(b"%[1]s"); m.close(); mf.close()`, others)
		if got != "0 mapped" {
			o.t.Logf("%s sees what the other wrote in its old mapping (%s): docs/files.md says less", vm.where, got)
		}
		again := `mf = open("map", "r+b"); m = mmap.mmap(mf.fileno(), 8192); out = "%%d read, %%d mapped" %% (mf.read().count(b"%[1]s"), m[:].count(b"%[1]s")); m.close(); mf.close()`
		until(o.t, "what the other wrote", func() bool { got = vm.do(again, others); return got == "4096 read, 4096 mapped" })
	}
}

// Of 100,000 files in a folder each is listed once.
func (o *odd) many() {
	const many = 100000
	if err := os.Mkdir(o.at("many"), 0o777); err != nil {
		o.t.Fatal(err)
	}
	for i := range many {
		f, err := os.Create(o.at(fmt.Sprint("many/", i)))
		if err != nil {
			o.t.Fatal(err)
		}
		f.Close()
	}
	if r := o.in("vm1", "ls -U many | sort -u | wc -l").want(o.t, 0); strings.TrimSpace(r.out) != fmt.Sprint(many) {
		o.t.Errorf("of %d files the VM sees %s", many, r.out)
	}
}

// A share that goes as a whole is an error of those who use it. The VM goes on.
func (o *odd) goneShare() {
	o.unmountBelow()
	if err := errors.Join(unix.Unmount(o.at("full"), unix.MNT_DETACH), os.RemoveAll(o.dir)); err != nil {
		o.t.Fatal(err)
	}
	r := finish(o.t, command(o.t, "exec", o.name()+"/vm0", "--", "sh", "-c", "echo x 2>&1 >"+o.dir+"/new; echo $?; echo on"), "").want(o.t, 0, "on\n")
	if strings.HasPrefix(r.out, "0") {
		o.t.Errorf("a file was made in a share that is gone: %s", r.out)
	}
}
