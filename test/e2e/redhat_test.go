package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// needsVirtiofsd puts a virtiofsd that nearmetal takes first in PATH, and one that every user may run.
func needsVirtiofsd(t *testing.T) {
	t.Helper()
	dir := filepath.Join("..", "..", "build", "virtiofsd")
	if _, err := os.Stat(dir); err == nil {
		everybodys := filepath.Join(top, "virtiofsd")
		if _, err := os.Stat(everybodys); err != nil {
			if out, err := exec.Command("cp", "-r", dir, everybodys).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		t.Setenv("PATH", everybodys+":"+os.Getenv("PATH"))
		return
	}
	for _, path := range []string{"virtiofsd", "/usr/libexec/virtiofsd"} {
		if _, err := exec.LookPath(path); err == nil {
			return
		}
	}
	// In CI, too: Debian 12's apt need not know where there is one, and make test says so at its end.
	t.Skip("this test needs a virtiofsd (scripts/virtiofsd.sh puts one into build)")
}

// redHatQEMU is a QEMU without the devices that Red Hat's is built without: the one that NEARMETAL_REDHAT_QEMU names
// (make test-rhel), else a copy of this host's.
func redHatQEMU(t *testing.T) string {
	t.Helper()
	if built := os.Getenv("NEARMETAL_REDHAT_QEMU"); built != "" {
		return everybodys(t, built)
	}
	needs(t, "qemu-system-x86_64", "python3")
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	os.Chmod(filepath.Dir(dir), 0o755)
	cmd := exec.Command("sh", filepath.Join("..", "..", "scripts", "qemu-redhat.sh"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "bin", "qemu-kvm")
}

// everybodys is a copy of a built QEMU, with its firmware, that every user may run.
func everybodys(t *testing.T, qemu string) string {
	t.Helper()
	dir := filepath.Join(top, "redhat")
	bin := filepath.Join(dir, filepath.Base(filepath.Dir(qemu)))
	if _, err := os.Stat(bin); err == nil {
		return filepath.Join(bin, filepath.Base(qemu))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from := filepath.Dir(filepath.Dir(qemu))
	if out, err := exec.Command("cp", "-r", filepath.Dir(qemu), filepath.Join(from, "share"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(bin, filepath.Base(qemu))
}

// overVirtiofs runs an MPI program in two VMs on that QEMU, by root, and with users by an ordinary user, too. Its files must come
// by virtiofs and its messages over the region; and nothing is left of it.
func overVirtiofs(t *testing.T, qemu, isolation string, users bool, words ...string) {
	t.Helper()
	p := newPlace(t)
	args := []string{"run", "-v", "--qemu", qemu, "--vms", "2", "--memory", "512MiB", "--isolation", isolation, "--",
		"mpirun.openmpi", "-n", "2", kernels + "/nm_latency", "--sizes", "8:4KiB", "--iterations", "100"}
	right := func(cmd *exec.Cmd) {
		t.Helper()
		cmd.Env = append(cmd.Env, logChannels...)
		r := finish(t, cmd, "").want(t, 0, append(words, "by virtiofs", "# rank 0: vm0", "# rank 1: vm1")...)
		if u := channels(r); u.count(overRegion) != 2 || u.count(overCore) != 0 {
			t.Errorf("channels: %q", u)
		}
	}
	right(p.command(args...))
	p.nothing()
	if !users {
		return
	}
	a := newAccount(t, 34567) // of whom /etc/passwd and /etc/subuid know nothing
	// A VM of his sees the directory in which he starts it, and of /tmp only what is his.
	args[len(args)-5] = filepath.Join(a.home, "nm_latency")
	if out, err := exec.Command("cp", kernel(t, "mpicc.openmpi", "nm_latency"), a.home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The provider is looked for beside the program.
	beside := filepath.Join(filepath.Dir(program.path), "c", "fabric")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(nearmetal), "c", "fabric", "libivshmem-fi.so"))
	if err = errors.Join(err, os.MkdirAll(beside, 0o755)); err == nil {
		err = os.WriteFile(filepath.Join(beside, "libivshmem-fi.so"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	right(a.command(t, append(append([]string{"run"}, a.kernel(t)...), args[1:]...)...))
	list, err := os.ReadDir(a.runtime)
	if err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() != ".lock" }) {
		t.Errorf("left of the user's: %v, %v", list, err)
	}
}

// On a QEMU like Red Hat's a cluster runs as elsewhere: files by virtiofs, the region as devdax, MPI over it.
func TestRedHatQEMU(t *testing.T) {
	needs(t, "mpirun.openmpi")
	needsVirtiofsd(t)
	qemu := redHatQEMU(t)
	levels := []string{"auto"}
	if os.Getenv("NEARMETAL_REDHAT_QEMU") != "" { // make test-rhel
		levels = []string{"auto", "standard", "strict"}
	}
	for _, isolation := range levels {
		t.Run(isolation, func(t *testing.T) {
			overVirtiofs(t, qemu, isolation, len(levels) > 1)
		})
	}
}

// Where such a QEMU has no user network, passt is that: an mpirun on the host reaches the VMs. isolation: strict refuses it.
func TestRedHatPasst(t *testing.T) {
	if os.Getenv("NEARMETAL_REDHAT_QEMU") == "" {
		t.Skip("it needs a QEMU that is built without slirp: make test-rhel PARTS=passt")
	}
	needs(t, "mpirun.openmpi", "passt")
	needsVirtiofsd(t)
	qemu := redHatQEMU(t)
	overVirtiofs(t, qemu, "standard", true)
	nm(t, "run", "--qemu", qemu, "--isolation", "strict", "--", "true").want(t, 125, "passt does not run in a jail")
}

// What is read-only is so for root in a VM, too; a share is written by the user who started the VMs; and a virtiofsd
// that dies takes its VM along, in a line.
func TestVirtiofs(t *testing.T) {
	needsVirtiofsd(t)
	file := write(t, top, "virtiofs.yaml", "files: virtiofs\n")
	for who, do := range attackersOf(t, 23456) {
		t.Run(who, func(t *testing.T) {
			name := "files-" + who
			isolation := map[string]string{"root": "standard"}[who]
			if isolation == "" {
				isolation = "strict"
			}
			up := do("up", "--name", name, "--memory", "512MiB", "-f", file, "--isolation", isolation)
			if r := finish(t, up, "").want(t, 0); strings.Contains(r.err, "this host's /proc") {
				t.Errorf("the host's own is not covered: %s", r.err)
			}
			defer func() { finish(t, do("down", name), "") }()
			in := func(asRoot, script string) result {
				t.Helper()
				args := []string{"exec", "-c", name, "--", "sh", "-c", script}
				if asRoot != "" {
					args = append([]string{"exec", asRoot}, args[1:]...)
				}
				return finish(t, do(args...), "")
			}
			in("", "cd "+up.Dir+" && echo mine >made && mkdir d && mv made d/ && ln d/made d/again && cat d/again").want(t, 0, "mine")
			in("--as-root", "touch "+up.Dir+"/roots").want(t, 0)
			for _, made := range []string{"d/made", "roots"} {
				fi, err1 := os.Stat(filepath.Join(up.Dir, made))
				want, err2 := os.Stat("/proc/" + strconv.Itoa(vmPID(t, do, name)))
				if err1 != nil || err2 != nil || uidOf(fi) != uidOf(want) {
					t.Errorf("%s is not the user's who started the VM: %v, %v", made, err1, err2)
				}
			}
			// The root once more, without the overlay: what is below it is the host's own, but for what is covered. What the
			// user has made since is there.
			later := fmt.Sprintf("/tmp/nm-later-%d-%s", os.Getpid(), who)
			uid := map[string]int{"user": 23456}[who]
			if err := errors.Join(os.WriteFile(later, []byte("later"), 0o644), os.Chown(later, uid, uid)); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(later)
			in("--as-root", "mkdir -p /mnt/lower && mount -t virtiofs root /mnt/lower && stat -c '%u %n' /mnt/lower/etc/passwd && ls /mnt/lower/proc /mnt/lower/run /mnt/lower/sys /mnt/lower/dev | wc -w").
				want(t, 0, "0 /mnt/lower/etc/passwd", "\n4\n")
			in("--as-root", "cat /mnt/lower"+later).want(t, 0, "later")
			out := in("--as-root", "touch /mnt/lower"+up.Dir+"/d/made2 || echo refused; mount -o remount,rw /mnt/lower; echo x >/mnt/lower"+up.Dir+"/d/made || echo refused").want(t, 0, "refused")
			if b, _ := os.ReadFile(filepath.Join(up.Dir, "d", "made")); string(b) != "mine\n" || strings.Count(out.out, "refused") != 2 {
				t.Errorf("the host's file holds %q; %s%s", b, out.out, out.err)
			}
		})
	}
	p := newPlace(t)
	// With the fewest descriptors that are taken, more files are found than virtiofsd may hold open. The VM has two nodes, and so
	// two pieces of memory, which virtiofsd both reaches.
	cmd := p.command("run", "--name", "x", "--memory", "512MiB", "--vcpus", "2", "-f", write(t, top, "nodes.yaml", "files: virtiofs\nplacement: {nodes: 2}\n"), "--",
		"sh", "-c", nodesReach(t)+"; find /usr -xdev -printf '%s\\n' | head -n 18000 | wc -l; echo started; exec sleep 12345")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 16384 && exec "$@"`, "sh"}, cmd.Args...)
	fillPieces(t, cmd.Dir)
	v := p.launch(cmd)
	v.out.await(t, "started")
	wantPieces(t, cmd.Dir, v.out.String())
	if !strings.Contains(v.out.String(), "18000\n") || strings.Contains(v.errs.String(), "Too many open files") {
		t.Errorf("%s%s", v.out, v.errs)
	}
	// It has nothing of the place's environment. It is of the job: in the cgroups of the process that owns the VMs.
	killed := 0
	for _, pid := range childrenOf(v.cmd.Process.Pid) {
		if strings.Contains(commandLine(pid), "--cache always") {
			owner := read(fmt.Sprintf("/proc/%d/cgroup", v.cmd.Process.Pid))
			if its := read(fmt.Sprintf("/proc/%d/cgroup", pid)); its != owner || its == "" {
				t.Errorf("the cgroups of virtiofsd are\n%snot\n%s", its, owner)
			}
			unix.Kill(pid, unix.SIGKILL)
			killed++
		}
	}
	if killed != 1 {
		t.Errorf("%d virtiofsd have the root", killed)
	}
	v.wantStatus(125, "its virtiofsd (root) ended: killed by signal 9")
	p.nothing()
}

// A VM of huge pages, on two nodes: virtiofsd reaches all of its memory. The pool is the host's: it is made larger for this test,
// and is as it was afterwards.
func TestVirtiofsPages(t *testing.T) {
	if os.Getenv("NEARMETAL_FILES") == "" {
		t.Skip("changes the host's huge pages: make test-files")
	}
	needsRoot(t)
	needsVirtiofsd(t)
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	number := func(name string) int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(read(pool + name)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(n int) {
		if err := os.WriteFile(pool+"nr_hugepages", []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	before := number("nr_hugepages")
	t.Cleanup(func() {
		set(before)
		if now := number("nr_hugepages"); now != before {
			t.Errorf("the pool has %d pages, had %d", now, before)
		}
	})
	const pages = 256 // 512 MiB
	set(before + pages)
	if number("free_hugepages") < pages {
		t.Fatalf("this host has no %d huge pages to give", pages)
	}
	free := number("free_hugepages")
	file := write(t, top, "pages.yaml", "files: virtiofs\nplacement: {nodes: 2, pages: huge}\n")
	for who, do := range attackersOf(t, 23456) {
		t.Run(who, func(t *testing.T) {
			name := "pages-" + who
			up := do("up", "--name", name, "--memory", "512MiB", "--vcpus", "2", "-f", file, "--isolation", "strict")
			fillPieces(t, up.Dir)
			finish(t, up, "").want(t, 0)
			defer func() { finish(t, do("down", name), "").want(t, 0) }()
			if left := free - number("free_hugepages"); left != pages {
				t.Errorf("%d huge pages are taken, not %d", left, pages)
			}
			finish(t, do("verify", name), "").want(t, 0, "2 MiB")
			r := finish(t, do("exec", "-c", name, "--", "env", "-C", up.Dir, "sh", "-c", nodesReach(t)), "").want(t, 0)
			wantPieces(t, up.Dir, r.out)
		})
		if now := number("free_hugepages"); now != free {
			t.Errorf("%d huge pages are free after the VM, not %d", now, free)
		}
	}
}

// nodesReach is a shell script for a VM of two nodes: by memory of each, a file of the share is read and another one written.
func nodesReach(t *testing.T) string {
	t.Helper()
	needs(t, "numactl")
	return "for n in 0 1; do numactl --membind=$n sha256sum piece$n && numactl --membind=$n cp piece$n copy$n || exit 1; done"
}

// fillPieces writes the files that nodesReach reads.
func fillPieces(t *testing.T, dir string) {
	t.Helper()
	for n := range 2 {
		piece := make([]byte, 4<<20)
		rand.New(rand.NewSource(int64(n))).Read(piece)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("piece", n)), piece, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPieces compares what nodesReach has read and written with them.
func wantPieces(t *testing.T, dir, out string) {
	t.Helper()
	for n := range 2 {
		piece := read(filepath.Join(dir, fmt.Sprint("piece", n)))
		if want := fmt.Sprintf("%x  piece%d\n", sha256.Sum256([]byte(piece)), n); !strings.Contains(out, want) {
			t.Errorf("by node %d was read: %q has no %q", n, out, want)
		}
		if read(filepath.Join(dir, fmt.Sprint("copy", n))) != piece {
			t.Errorf("by node %d was written something else", n)
		}
	}
}

// childrenOf are the processes that a process has started.
func childrenOf(pid int) []int {
	var list []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		b, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// vmPID is the process of the only VM of a cluster.
func vmPID(t *testing.T, do func(args ...string) *exec.Cmd, name string) int {
	t.Helper()
	r := finish(t, do("ps", name, "--json"), "").want(t, 0)
	var cluster struct{ VMs []struct{ PID int } }
	if err := json.Unmarshal([]byte(r.out), &cluster); err != nil || len(cluster.VMs) != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	return cluster.VMs[0].PID
}

func uidOf(fi os.FileInfo) uint32 { return fi.Sys().(*syscall.Stat_t).Uid }

// Two programs that look at all files of a large tree at once, with a low limit of open files: none of them meets
// it, though they find three times as many as virtiofsd may hold open.
func TestVirtiofsFinds(t *testing.T) {
	needsVirtiofsd(t)
	p := newPlace(t)
	cmd := p.command("run", "--name", "x", "--memory", "512MiB", "--vcpus", "2", "-f", write(t, top, "finds.yaml", "files: virtiofs\n"), "--",
		"sh", "-c", `for n in 0 1; do find $n -printf '%s\n' | wc -l & done; wait`)
	for i := range 600 {
		dir := filepath.Join(cmd.Dir, strconv.Itoa(i%2), strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for k := range 100 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(k)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 16384 && exec "$@"`, "sh"}, cmd.Args...)
	r := finish(t, cmd, "").want(t, 0)
	if n := strings.Count(r.err, "\n"); strings.Count(r.out, "30301\n") != 2 || strings.Contains(r.err, "oo many open files") {
		t.Errorf("%s%d lines of errors: %.1000s", r.out, n, r.err)
	}
	p.nothing()
}
