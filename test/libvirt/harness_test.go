// Package libvirt runs nearmetal on a real libvirtd: one of the host's in a namespace of its own, as root, and one of
// a user's own. Both need no systemd.
package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bound is how long a step may take on a busy machine.
const bound = 5 * time.Minute

var (
	built   string // build/nearmetal, which has the provider beside it
	copied  string // one that every user may run
	kernels string // the directory of build/c/kernels
	top     string // of ours, which every user may look for a path in
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		root, err := filepath.Abs("../..")
		if err != nil {
			panic(err)
		}
		kernels = filepath.Join(root, "build", "c", "kernels")
		built = filepath.Join(root, "build", "nearmetal")
		text, err := os.ReadFile(built)
		if err != nil {
			fmt.Fprintln(os.Stderr, "no build/nearmetal: run make first")
			return 1
		}
		if top, err = os.MkdirTemp("/tmp", "nm-lv-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(top)
		copied = filepath.Join(top, "nearmetal")
		if err := errors.Join(os.Chmod(top, 0o711), os.WriteFile(copied, text, 0o755)); err != nil {
			panic(err)
		}
		for _, v := range []string{"NEARMETAL_CLUSTER", "LIBVIRT_DEFAULT_URI", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"} {
			os.Unsetenv(v)
		}
		os.Setenv("NEARMETAL_ROOT_WRITES", "1") // CI runs as root
		return m.Run()
	}())
}

// needs skips a test outside of CI, and fails it there, where a program is missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs libvirtd")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs ", p)
		}
		t.Skip("this test needs ", p, ": sh scripts/install.sh libvirt")
	}
}

// site is somebody with a libvirtd.
type site struct {
	t       *testing.T
	uid     int
	program string // nearmetal
	on      string // what --on gets
	dir     string // of clusters
	env     []string
	home    string
	host    *host // nil: a user's own daemon
}

// host is the host's libvirtd, in a namespace of its own.
type host struct {
	t      *testing.T
	dir    string
	holder *exec.Cmd // holds the namespace
	in     io.Closer
	daemon *exec.Cmd
	said   bytes.Buffer // by all its daemons
}

// ofHost starts a libvirtd of the host's, and returns root's site with it.
func ofHost(t *testing.T) *site {
	t.Helper()
	needs(t, "libvirtd", "unshare", "nsenter", "virsh")
	h := &host{t: t, dir: filepath.Join(top, t.Name())}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.holder = exec.Command("unshare", "-m", "sh", "libvirtd.sh", h.dir)
	h.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.holder.Stderr = os.Stderr
	in, _ := h.holder.StdinPipe()
	out, _ := h.holder.StdoutPipe()
	if err := h.holder.Start(); err != nil {
		t.Fatal(err)
	}
	h.in = in
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("libvirtd.sh: %q, %v", line, err)
	}
	before := cgroups()
	t.Cleanup(func() {
		h.kill()
		in.Close()
		h.holder.Wait()
		// Without systemd, nobody removes the cgroups of a domain whose QEMU ended while its daemon was dead.
		for _, dir := range cgroups() {
			if slices.Contains(before, dir) {
				continue
			}
			inner, _ := filepath.Glob(dir + "/*")
			for _, path := range append(inner, dir) {
				syscall.Rmdir(path) // a file stays, and what has a process in it
			}
		}
	})
	h.start()
	s := &site{t: t, program: built, host: h, on: "qemu:///system?socket=" + h.dir + "/libvirt-sock", dir: filepath.Join(h.dir, "clusters"), home: t.TempDir()}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "NEARMETAL_RUNTIME_DIR="+s.dir)
	return s
}

// cgroups are those of libvirt's domains.
func cgroups() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/machine/qemu-*.libvirt-qemu")
	v2, _ := filepath.Glob("/sys/fs/cgroup/machine/qemu-*.libvirt-qemu")
	return append(v1, v2...)
}

// start starts the daemon, and waits until it answers.
func (h *host) start() {
	h.t.Helper()
	h.daemon = exec.Command("nsenter", "-m", "-t", fmt.Sprint(h.holder.Process.Pid), "libvirtd", "-f", h.dir+"/libvirtd.conf", "-p", h.dir+"/pid")
	h.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.daemon.Stderr = &h.said
	if err := h.daemon.Start(); err != nil {
		h.t.Fatal(err)
	}
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) { // no event says so
		c, err := net.Dial("unix", h.dir+"/libvirt-sock")
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("libvirtd does not listen: %v", err)
		}
	}
}

// kill ends the daemon at once.
func (h *host) kill() {
	h.daemon.Process.Kill()
	h.daemon.Wait()
	if st := h.daemon.ProcessState; h.t.Failed() || st.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		h.t.Logf("libvirtd: %v\n%s", st, h.said.String())
	}
}

// kill kills a process that is not a child, and awaits its end: what it held is free then.
func kill(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(bound); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		if n == 1 {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("process %d: %d, %v", pid, n, err)
		}
	}
}

// ofUser returns the site of a user without privileges, whose daemon starts when it is wanted. more is added to the
// user's environment, with HOME for the user's home.
func ofUser(t *testing.T, name string, more ...string) *site {
	t.Helper()
	needs(t, "libvirtd", "virsh")
	s := &site{t: t, program: copied, uid: 65534, on: "libvirt", home: filepath.Join(top, name), dir: filepath.Join(top, name, "clusters")}
	for _, d := range []string{s.home, s.dir, filepath.Join(s.home, "run")} {
		if err := errors.Join(os.Mkdir(d, 0o700), os.Chown(d, s.uid, s.uid)); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{"HOME=" + s.home, "NEARMETAL_RUNTIME_DIR=" + s.dir, "PATH=" + os.Getenv("PATH"), "USER=nobody"}
	for _, e := range more {
		s.env = append(s.env, strings.ReplaceAll(e, "HOME", s.home))
	}
	t.Cleanup(func() {
		for _, pid := range s.processes() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return s
}

// command prepares a program of the site's user, which sees the directories of the site's daemon.
func (s *site) command(program string, args ...string) *exec.Cmd {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	s.t.Cleanup(cancel)
	if s.host != nil {
		id := fmt.Sprint(s.uid)
		args = append([]string{"-m", "-t", fmt.Sprint(s.host.holder.Process.Pid), "-S", id, "-G", id, "--wdns=" + s.home, "--", program}, args...)
		program = "nsenter"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.WaitDelay = s.env, 10*time.Second
	if s.host == nil {
		cmd.Dir = s.home
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.uid)}}
	}
	return cmd
}

// result is how a command ended.
type result struct {
	t        *testing.T
	out, err string
	code     int
}

func (s *site) finish(cmd *exec.Cmd) result {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		s.t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return result{s.t, out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// nm runs nearmetal.
func (s *site) nm(args ...string) result {
	s.t.Helper()
	return s.finish(s.command(s.program, args...))
}

// virsh asks the site's daemon.
func (s *site) virsh(args ...string) result {
	s.t.Helper()
	uri := s.on
	if s.host == nil {
		uri = "qemu:///session"
	}
	return s.finish(s.command("virsh", append([]string{"-q", "-c", uri}, args...)...))
}

// small are flags of VMs that boot as fast as they can.
func (s *site) small(args ...string) []string {
	return append([]string{"--on", s.on, "--memory", "256MiB", "--no-share"}, args...)
}

// up starts a cluster, which ends with the test.
func (s *site) up(name string, args ...string) {
	s.t.Helper()
	s.t.Cleanup(func() { s.nm("down", name) })
	s.nm(append([]string{"up", "--name", name}, s.small(args...)...)...).want(0)
}

// want fails unless the command ended with the status, and said the words.
func (r result) want(code int, words ...string) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit status %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.out+r.err, w) {
			r.t.Fatalf("%q is missing\nstdout: %s\nstderr: %s", w, r.out, r.err)
		}
	}
	return r
}

// oneLine fails unless the last of what was said is one line that is harmless to print.
func (r result) oneLine() {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	n := 0
	for _, l := range lines {
		if !strings.Contains(l, "done after") && !strings.HasSuffix(l, "...") && !strings.Contains(l, "timings are not meaningful") {
			n++
		}
	}
	if n != 1 || strings.Contains(r.err, "goroutine") {
		r.t.Errorf("not one line: %q", r.err)
	}
}

// processes are those that have the site's directory of clusters, or its sockets, in their environment or command.
func (s *site) processes() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if bytes.Contains(env, []byte("NEARMETAL_RUNTIME_DIR="+s.dir+"\x00")) || bytes.Contains(line, []byte(s.dir+"/")) {
			var pid int
			fmt.Sscan(filepath.Base(d), &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// qemus are the processes of domains.
func (s *site) qemus() []int {
	var pids []int
	for _, pid := range s.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte("\x00guest=")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// qemu is the process of a domain, whoever made it.
func (s *site) qemu(domain string) int {
	s.t.Helper()
	pid := s.running(domain)
	if pid == 0 {
		s.t.Fatalf("domain %s has no QEMU", domain)
	}
	return pid
}

// running is the process of a domain, as libvirt's pid file names it; 0: it has none.
func (s *site) running(domain string) int {
	s.t.Helper()
	path := fmt.Sprintf("%s/run/libvirt/qemu/run/%s.pid", s.home, domain)
	if s.host != nil {
		path = fmt.Sprintf("/proc/%d/root/run/libvirt/qemu/%s.pid", s.host.holder.Process.Pid, domain)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		s.t.Fatalf("%s: %q, %v", path, text, err)
	}
	if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); !bytes.Contains(line, []byte("\x00guest="+domain+",")) {
		return 0 // the file is left by a daemon that was killed
	}
	return pid
}

// stranger is a process of another user that has a domain's UUID on its command line, as its QEMU has. It reads until the
// test ends, unless somebody ends it.
func (s *site) stranger(uuid string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read line", "qemu", "-uuid", uuid, "-machine")
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("%q, %v", line, err)
	}
	s.t.Cleanup(func() {
		in.Close()
		if cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			s.t.Errorf("a stranger's process with a domain's UUID was ended: %v", cmd.ProcessState)
		}
	})
	return cmd
}

// file is a cluster file with the text.
func (s *site) file(text string) string {
	s.t.Helper()
	path := filepath.Join(s.home, "cluster.yaml")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// owner is the process that a cluster's VMs belong to.
func (s *site) owner(cluster string) int {
	s.t.Helper()
	var r struct{ Owner int }
	out := s.nm("ps", cluster, "--json").want(0).out
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Owner < 2 {
		s.t.Fatalf("%v: %s", err, out)
	}
	return r.Owner
}

// nothing fails if anything of the site's clusters is left, within a while.
func (s *site) nothing() {
	s.t.Helper()
	for end := time.Now().Add(bound / 4); ; time.Sleep(20 * time.Millisecond) {
		var left []string
		for _, pid := range s.qemus() {
			left = append(left, fmt.Sprint("QEMU ", pid))
		}
		list, _ := os.ReadDir(s.dir)
		for _, e := range list {
			if e.IsDir() {
				left = append(left, e.Name())
			}
		}
		if left == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("left behind: %v", left)
		}
	}
}

// started is a nearmetal that runs, with what it says.
type started struct {
	*exec.Cmd
	said chan string // lines of standard output
	errs *bytes.Buffer
}

// start starts a cluster for a command that says that it runs, and stays.
func (s *site) start(name string, args ...string) *started {
	s.t.Helper()
	cmd := s.command(s.program, append(append([]string{"run", "--name", name}, s.small(args...)...), "--", "sh", "-c", "echo runs; exec sleep 12345")...)
	v := &started{cmd, make(chan string, 100), &bytes.Buffer{}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = v.errs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(v.said)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			v.said <- sc.Text()
		}
	}()
	select {
	case line := <-v.said:
		if !strings.Contains(line, "runs") {
			cmd.Wait()
			s.t.Fatalf("%q, %s", line, v.errs)
		}
	case <-time.After(bound):
		cmd.Process.Kill()
		s.t.Fatalf("it does not run: %s", v.errs)
	}
	return v
}
