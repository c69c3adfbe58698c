package isolate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
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

// TestMain also acts as a program in a jail that tries forbidden operations: this test's own, started as "PROGRAM
// probe WHAT ARGUMENT…".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "probe" {
		if err := probes[os.Args[2]](os.Args[3:]); err != nil {
			fmt.Println("refused:", err)
			os.Exit(0)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func init() {
	probes["ask"] = func([]string) error {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			words := strings.Fields(in.Text())
			if err := probes[words[0]](words[1:]); err != nil {
				fmt.Println("refused:", err)
			} else {
				fmt.Println("done")
			}
		}
		return nil
	}
}

var probes = map[string]func(a []string) error{
	"read": func(a []string) error {
		_, err := os.ReadFile(a[0])
		return err
	},
	"list": func(a []string) error {
		list, err := os.ReadDir(a[0])
		for _, e := range list {
			fmt.Println(e.Name())
		}
		return err
	},
	"write":  func(a []string) error { return os.WriteFile(a[0], []byte("x"), 0o600) },
	"rename": func(a []string) error { return os.Rename(a[0], a[1]) },
	"mknod":  func(a []string) error { return unix.Mknod(a[0], unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"kill": func(a []string) error {
		pid, _ := strconv.Atoi(a[0])
		return unix.Kill(pid, 0)
	},
	"ptrace": func(a []string) error {
		pid, _ := strconv.Atoi(a[0])
		return unix.PtraceSeize(pid)
	},
	"connect": func(a []string) error {
		c, err := net.Dial(a[0], a[1])
		if err == nil {
			c.Close()
		}
		return err
	},
	"listen": func(a []string) error {
		l, err := net.Listen("tcp", a[0])
		if err == nil {
			l.Close()
		}
		return err
	},
	"mount": func(a []string) error { return unix.Mount("none", a[0], "tmpfs", 0, "") },
	"newns": func(a []string) error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	},
	"setns": func(a []string) error {
		fd, _ := strconv.Atoi(a[0])
		return unix.Setns(fd, unix.CLONE_NEWNS)
	},
	"exec":  func(a []string) error { return syscall.Exec(a[0], a, nil) },
	"setid": func(a []string) error { return syscall.Exec(a[0], []string{a[0], "probe", "whoami"}, nil) },
	"whoami": func([]string) error {
		fmt.Println("euid", os.Geteuid())
		return nil
	},
	"shm": func(a []string) error {
		id, _ := strconv.Atoi(a[0])
		_, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
		return err
	},
	"status": func([]string) error {
		b, err := os.ReadFile("/proc/self/status")
		os.Stdout.Write(b)
		fmt.Println(os.Environ())
		return err
	},
	"forks": func(a []string) error {
		n, _ := strconv.Atoi(a[0])
		for range n {
			cmd := exec.Command("/proc/self/exe", "probe", "sleep")
			if err := cmd.Start(); err != nil {
				return err
			}
		}
		return nil
	},
	"sleep": func([]string) error { select {} },
	"eat": func(a []string) error {
		n, _ := strconv.Atoi(a[0])
		b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		return err
	},
}

// jailed runs a probe in a jail and returns its output.
func jailed(t *testing.T, j Jail, words ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binds, err := Needs(self, nil)
	if err != nil {
		t.Fatal(err)
	}
	j.Args, j.Binds = append([]string{self, "probe"}, words...), append(j.Binds, binds...)
	cmd, enter, err := j.Command()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err = enter(cmd.Start())
	namespaces(t, err)
	if err := cmd.Wait(); err != nil {
		return out.String() + err.Error()
	}
	return out.String()
}

// both runs a test under Landlock, and without it, to test the protection by the namespaces only.
func both(t *testing.T, f func(t *testing.T, j Jail)) {
	t.Helper()
	t.Run("landlock", func(t *testing.T) {
		if LandlockABI() == 0 {
			t.Skip(LandlockLacks())
		}
		f(t, Jail{})
	})
	t.Run("namespaces", func(t *testing.T) { f(t, Jail{NoLandlock: true}) })
}

// TestJail tries what a compromised program would try against its host.
func TestJail(t *testing.T) {
	defer asUser(t)
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	pid := strconv.Itoa(victim.Process.Pid)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	abstract := fmt.Sprintf("@nm-isolate-%d", os.Getpid())
	un, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer un.Close()
	shm, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.SysvShmCtl(shm, unix.IPC_RMID, nil)
	own := tmpDir(t)
	write(t, own+"/file")
	attacks := [][]string{
		{"read", "/etc/shadow"}, {"read", "/etc/passwd"}, {"read", own + "/file"}, {"read", "/proc/" + pid + "/environ"}, {"read", "/proc/version"},
		{"read", "/proc/sys/kernel/hostname"}, {"list", "/sys"}, {"list", "/run"}, {"list", "/home"},
		{"kill", pid}, {"ptrace", pid}, {"connect", "tcp", ln.Addr().String()}, {"connect", "unix", abstract},
		{"connect", "udp", "10.255.255.1:53"}, {"mount", "/dev"}, {"newns"}, {"exec", "/bin/sh"}, {"exec", "/usr/bin/su"},
		{"write", "/file"}, {"write", "/dev/file"}, {"mknod", "/dev/x"}, {"shm", strconv.Itoa(shm)},
	}
	both(t, func(t *testing.T, j Jail) {
		for _, a := range attacks {
			if got := jailed(t, j, a...); !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%v: %s", a, got)
			}
		}
		if got := jailed(t, j, "read", "/dev/urandom2"); !strings.HasPrefix(got, "refused: ") {
			t.Error(got)
		}
		if got := jailed(t, j, "list", "/proc"); strings.Fields(got)[0] != "1" || strings.Contains(got, "\n2\n") {
			t.Errorf("/proc holds %s", got)
		}
		j.Env = []string{"A=b"}
		status := jailed(t, j, "status")
		for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "[A=b]"} {
			if !strings.Contains(status, want) {
				t.Errorf("%q is not in %s", want, status)
			}
		}
	})
	// Without a jail each attack reaches its target, which shows that the target exists.
	for _, a := range attacks {
		if slices.Contains([]string{"mount", "newns", "write", "mknod", "exec"}, a[0]) || a[1] == "/etc/shadow" || a[1] == "/home" {
			continue // needs root, or changes the host
		}
		self, _ := os.Executable()
		out, err := exec.Command(self, append([]string{"probe"}, a...)...).CombinedOutput()
		if err != nil || strings.HasPrefix(string(out), "refused") {
			t.Errorf("without a jail, %v: %s %v", a, out, err)
		}
	}
}

// TestJailSetuid: a setuid program gains nothing.
func TestJailSetuid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make such a program")
	}
	dir := tmpDir(t)
	self, _ := os.Executable()
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := dir + "/setid"
	if err := errors.Join(os.WriteFile(program, b, 0o755), os.Chown(program, user, user), os.Chmod(program, 0o4755|os.ModeSetuid), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command(program, "probe", "whoami").CombinedOutput(); !strings.Contains(string(out), fmt.Sprint("euid ", user)) {
		t.Fatalf("the attack aims at nothing: %s", out)
	}
	j := Jail{Binds: []Bind{{Path: program, Exec: true}}}
	if got := jailed(t, j, "setid", program); !strings.Contains(got, "euid 0\n") {
		t.Error(got)
	}
}

// namespaces ends a test whose veil could not be made: if namespaces are not available the test is skipped, but fails
// in CI.
func namespaces(t *testing.T, err error) {
	t.Helper()
	var no *NoNamespace
	if errors.As(err, &no) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJailExports tests the exports and their surroundings.
func TestJailExports(t *testing.T) {
	defer asUser(t)
	home := tmpDir(t)
	share := home + "/share"
	if err := errors.Join(os.MkdirAll(share+"/a", 0o755), os.Mkdir(share+"/b", 0o755), os.Mkdir(home+"/ro", 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, home+"/secret")
	write(t, home+"/ro/file")
	v, err := NewLockedVeil([]string{"/", share, home + "/ro"}, nil, []string{share})
	namespaces(t, err)
	defer v.Close()
	both(t, func(t *testing.T, j Jail) {
		write(t, share+"/a/file")
		os.Remove(share + "/b/file")
		d := v.Dirs()
		j.Files = []JailFile{{File: d[0], Reopen: true}, {File: d[1], Reopen: true, Write: true}, {File: d[2], Reopen: true}, {File: v.Namespace()}}
		root, rw, ro := "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5"
		for _, good := range [][]string{
			{"read", root + "/etc/passwd"}, {"list", root + "/usr"}, {"read", rw + "/a/file"}, {"write", rw + "/new"}, {"read", ro + "/file"},
			{"rename", rw + "/a/file", rw + "/b/file"}, {"read", root + home + "/secret"},
		} {
			if got := jailed(t, j, good...); !strings.HasSuffix(got, "done\n") {
				t.Errorf("%v: %s", good, got)
			}
		}
		for _, bad := range [][]string{
			{"write", root + "/new"}, {"write", root + home + "/new"}, {"write", root + share + "/new2"}, {"write", ro + "/new"}, {"write", ro + "/file"},
			{"write", ro + "/../share/new3"}, {"read", ro + "/../secret"}, {"read", rw + "/../secret"}, {"read", rw + "/../../etc/passwd"}, {"mknod", rw + "/x"},
			{"read", root + "/proc/version"}, {"list", root + "/proc/1"}, {"setns", "6"}, {"exec", root + "/bin/sh"},
		} {
			if bad[0] == "exec" && j.NoLandlock {
				continue // under QEMU's own filter no program is started
			}
			if got := jailed(t, j, bad...); !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%v: %s", bad, got)
			}
		}
		if _, err := os.Stat(filepath.Join(share, "new")); err != nil {
			t.Error(err)
		}
	})
}

// TestJailNetwork tests a jail that keeps the host's network, as a user network's does.
func TestJailNetwork(t *testing.T) {
	defer asUser(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if got := jailed(t, Jail{Network: true}, "connect", "tcp", ln.Addr().String()); !strings.HasSuffix(got, "done\n") {
		t.Error(got)
	}
	if abi := LandlockABI(); abi < fullABI {
		t.Skip(LandlockLacks())
	}
	abstract := fmt.Sprintf("@nm-isolate-net-%d", os.Getpid())
	un, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer un.Close()
	for _, bad := range [][]string{{"listen", "127.0.0.1:0"}, {"listen", "127.0.0.1:34567"}, {"connect", "unix", abstract}} {
		got := jailed(t, Jail{Network: true}, bad...)
		if !strings.HasPrefix(got, "refused: ") {
			t.Errorf("%v: %s", bad, got)
		}
	}
}

func TestJailRefuses(t *testing.T) {
	j := Jail{Args: []string{"/bin/true"}, Binds: []Bind{{Path: "/no/such/place"}}}
	cmd, enter, err := j.Command()
	if err != nil {
		t.Fatal(err)
	}
	err = enter(cmd.Start())
	cmd.Wait()
	if err == nil || !strings.Contains(err.Error(), "showing /no/such/place") {
		t.Errorf("%v", err)
	}
}

func TestLandlockLacks(t *testing.T) {
	for abi, want := range map[int]string{0: "no Landlock", 1: "moves between", 3: "TCP ports", 4: "device control", 5: "signals"} {
		if got := landlockLacks(abi); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%d: %s", abi, got)
		}
	}
	if landlockLacks(fullABI) != "" || landlockLacks(99) != "" {
		t.Error("nothing is missing")
	}
	if r := ruleset(1, false); r.Access_fs != 0x1fff || r.Access_net != 0 || r.Scoped != 0 {
		t.Errorf("%+v", r)
	}
}

// TestJailTrees: a program opens its exports by name, in a mount namespace of its own. The exports are visible, files
// that the user makes later appear, the kernel enforces read-only ones, and no path leads out.
func TestJailTrees(t *testing.T) {
	defer asUser(t)
	home := tmpDir(t)
	share := home + "/share"
	if err := errors.Join(os.Mkdir(share, 0o755), os.Mkdir(home+"/ro", 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, home+"/secret")
	write(t, home+"/ro/file")
	v, err := NewTreeVeil([]string{"/", share, home + "/ro"}, nil, []string{share})
	namespaces(t, err)
	defer v.Close()
	if _, err := v.Tree(3); err == nil {
		t.Error("a tree that was not asked for")
	}
	tree := func(i int) *os.File {
		t.Helper()
		f, err := v.Tree(i)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	both(t, func(t *testing.T, j Jail) {
		try := func(words ...string) string {
			j.Files = []JailFile{{File: tree(0), Reopen: true, At: "/root"}, {File: tree(1), Reopen: true, Write: true, At: "/rw"}, {File: tree(2), Reopen: true, At: "/ro"}}
			defer func() {
				for _, f := range j.Files {
					f.File.Close()
				}
			}()
			return jailed(t, j, words...)
		}
		for _, good := range [][]string{
			{"read", "/root/etc/passwd"}, {"list", "/root/usr"}, {"write", "/rw/new"}, {"read", "/ro/file"}, {"read", "/root" + home + "/secret"},
		} {
			if got := try(good...); !strings.HasSuffix(got, "done\n") {
				t.Errorf("%v: %s", good, got)
			}
		}
		for _, bad := range [][]string{
			{"write", "/root/new"}, {"write", "/root" + home + "/new"}, {"write", "/root" + share + "/new2"}, {"write", "/ro/new"}, {"write", "/ro/file"},
			{"read", "/rw/../secret"}, {"read", "/etc/passwd"}, {"mknod", "/rw/x"}, {"read", "/root/proc/version"}, {"list", "/root/proc/1"},
			{"read", "/proc/self/fd/3/etc/passwd"}, // the tree itself is not inherited
		} {
			if got := try(bad...); !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%v: %s", bad, got)
			}
		}
		if _, err := os.Stat(filepath.Join(share, "new")); err != nil {
			t.Error(err)
		}
	})
	// A running program sees later additions and removals, and may not write there either.
	later := tmpDir(t)
	f := tree(0)
	defer f.Close()
	p := startJailed(t, Jail{Files: []JailFile{{File: f, Reopen: true, At: "/root"}}}, "ask")
	p.ask(t, "read /root"+later+"/file", false)
	write(t, later+"/file")
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	p.ask(t, "read /root"+later+"/file", true)
	p.ask(t, "write /root"+later+"/file", false)
	p.ask(t, "write /root"+home+"/secret", false)
	os.RemoveAll(later)
	if err := v.Refresh(); err != nil {
		t.Fatal(err)
	}
	p.ask(t, "read /root"+later+"/file", false)
}

// inJail is a running probe that is sent other probes line by line.
type inJail struct {
	in  io.Writer
	out *bufio.Scanner
}

func startJailed(t *testing.T, j Jail, words ...string) *inJail {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binds, err := Needs(self, nil)
	if err != nil {
		t.Fatal(err)
	}
	j.Args, j.Binds = append([]string{self, "probe"}, words...), append(j.Binds, binds...)
	cmd, enter, err := j.Command()
	if err != nil {
		t.Fatal(err)
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := enter(cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &inJail{in, bufio.NewScanner(out)}
}

func (p *inJail) ask(t *testing.T, line string, want bool) {
	t.Helper()
	fmt.Fprintln(p.in, line)
	if !p.out.Scan() {
		t.Fatalf("%s: no answer", line)
	}
	if got := p.out.Text() == "done"; got != want {
		t.Errorf("%s: %s, want it done: %v", line, p.out.Text(), want)
	}
}
