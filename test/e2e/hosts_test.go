package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bed is two hosts, each a network namespace with an sshd, and a third namespace from which they are reached as a
// user's machine would: by ssh with a key. Each has a directory of clusters and a cache of its own.
type bed struct {
	t        *testing.T
	dir      string
	front    string            // name of the namespace
	hosts    map[string]string // names of the namespaces
	sshds    []*exec.Cmd
	launched []*exec.Cmd
}

var hostNames = []string{"alpha", "beta"}

func newBed(t *testing.T) *bed {
	t.Helper()
	needsRoot(t)
	needs(t, "ip", "ssh", "ssh-keygen", "/usr/sbin/sshd")
	// Its name is not a cluster's: no sweep takes it for one.
	dir, err := os.MkdirTemp(runtime, "Hosts_")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dir: dir, front: fmt.Sprintf("nmt%dfront", os.Getpid()), hosts: map[string]string{}}
	t.Cleanup(b.close)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", b.front)
	ip("-n", b.front, "link", "set", "lo", "up")
	ip("-n", b.front, "link", "add", "br0", "type", "bridge")
	ip("-n", b.front, "link", "set", "br0", "up")
	ip("-n", b.front, "addr", "add", "198.18.77.1/24", "dev", "br0")
	// On the host old another version of nearmetal answers.
	b.write("ssh", 0o755, "#!/bin/sh\ncase \" $* \" in *\" -- old \"*) /usr/bin/ssh -F %[1]s/config \"$@\" | sed -u 's/\"protocol\":[0-9]*/\"protocol\":99/'; exit;; esac\n"+
		"exec /usr/bin/ssh -F %[1]s/config \"$@\"\n", dir)
	config := ""
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	b.key("user")
	for i, name := range hostNames {
		ns := fmt.Sprintf("nmt%d%s", os.Getpid(), name)
		b.hosts[name] = ns
		// What a host takes the others' names for is wrong: they call each other as the user's machine has reached them.
		if err := os.MkdirAll("/etc/netns/"+ns, 0o755); err != nil {
			t.Fatal(err)
		}
		b.write("/etc/netns/"+ns+"/hosts", 0o644, "127.0.0.1 localhost\n198.18.77.9 %s\n", strings.Join(hostNames, " "))
		ip("netns", "add", ns)
		ip("-n", ns, "link", "set", "lo", "up")
		ip("-n", b.front, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", ns)
		ip("-n", b.front, "link", "set", name, "master", "br0", "up")
		addr := fmt.Sprintf("198.18.77.%d", i+2)
		ip("-n", ns, "addr", "add", addr+"/24", "dev", "eth0")
		ip("-n", ns, "link", "set", "eth0", "up")
		if err := os.MkdirAll(b.path(name, "run"), 0o700); err != nil {
			t.Fatal(err)
		}
		b.key(name + ".key")
		b.write(name+".conf", 0o600, "ListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"+
			"PermitRootLogin prohibit-password\nPidFile none\nSetEnv NEARMETAL_RUNTIME_DIR=%s XDG_CACHE_HOME=%s\n"+
			"Match User %s\nAuthorizedKeysFile .ssh/authorized_keys\nSetEnv NEARMETAL_RUNTIME_DIR=%s XDG_CACHE_HOME=%s\n",
			addr, b.path(name+".key"), b.path("user.pub"), b.path(name, "run"), b.path(name, "cache"),
			loginName(), filepath.Join(loginHome(), name, "run"), filepath.Join(loginHome(), name, "cache"))
		sshd := exec.Command("ip", "netns", "exec", ns, "/usr/sbin/sshd", "-D", "-f", b.path(name+".conf"), "-E", b.path(name+".log"))
		if err := sshd.Start(); err != nil {
			t.Fatal(err)
		}
		b.sshds = append(b.sshds, sshd)
		until(t, "sshd of "+name, func() bool {
			log, _ := os.ReadFile(b.path(name + ".log"))
			return bytes.Contains(log, []byte("listening"))
		})
		config += fmt.Sprintf("Host %s %s-too\n HostName %s\n", name, name, addr)
		if i == 0 {
			config += fmt.Sprintf("Host old\n HostName %s\n", addr)
		}
	}
	config += "Host nowhere\n HostName 198.18.77.9\n"
	b.write("config", 0o600, "%sHost *\n User root\n IdentityFile %s\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile %s\n ControlPath %s/%%n.ctl\n",
		config, b.path("user"), b.path("known"), b.dir)
	if err := os.Mkdir(b.path("front"), 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

func (b *bed) write(name string, mode os.FileMode, format string, args ...any) {
	b.t.Helper()
	if !filepath.IsAbs(name) {
		name = b.path(name)
	}
	if err := os.WriteFile(name, []byte(fmt.Sprintf(format, args...)), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) key(name string) {
	b.t.Helper()
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", b.path(name)).CombinedOutput(); err != nil {
		b.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

func (b *bed) close() {
	for _, c := range b.launched {
		c.Process.Kill()
	}
	for _, s := range b.sshds {
		s.Process.Kill()
		s.Wait()
	}
	for _, ns := range append([]string{b.front}, b.hosts["alpha"], b.hosts["beta"]) {
		if ns == "" {
			continue
		}
		for _, pid := range b.inside(ns) {
			unix.Kill(pid, unix.SIGKILL)
		}
		exec.Command("ip", "netns", "del", ns).Run()
		os.RemoveAll("/etc/netns/" + ns)
	}
	if b.t.Failed() {
		for _, name := range hostNames {
			log, _ := os.ReadFile(b.path(name + ".log"))
			b.t.Logf("%s: %s", name, log)
		}
	}
	os.RemoveAll(b.dir)
}

// ownConnection makes a connection to a host as its user may share it (ControlMaster). The function that it returns looks
// that the host has authenticated nobody else since, and that the connection is still there; then it ends it.
func (b *bed) ownConnection(host string) (end func()) {
	b.t.Helper()
	accepted := func() int {
		log, _ := os.ReadFile(b.path(host + ".log"))
		return bytes.Count(log, []byte("Accepted publickey"))
	}
	ssh := func(args ...string) *exec.Cmd {
		return exec.Command("ip", append([]string{"netns", "exec", b.front, "/usr/bin/ssh", "-F", b.path("config")}, args...)...)
	}
	before := accepted()
	master := ssh("-M", "-N", host)
	if err := master.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.launched = append(b.launched, master)
	until(b.t, "a shared connection to "+host, func() bool { return ssh("-O", "check", host).Run() == nil })
	return func() {
		b.t.Helper()
		if n := accepted() - before; n != 1 {
			b.t.Errorf("%s authenticated %d times, want the user's own time alone", host, n)
		}
		if out, err := ssh("-O", "check", host).CombinedOutput(); err != nil {
			b.t.Errorf("the user's own connection to %s: %v: %s", host, err, out)
		}
		if out, err := ssh("-O", "exit", host).CombinedOutput(); err != nil {
			b.t.Errorf("%v: %s", err, out)
		}
		master.Wait()
	}
}

// inside are the processes in a namespace.
func (b *bed) inside(ns string) []int {
	out, _ := exec.Command("ip", "netns", "pids", ns).Output()
	var list []int
	for _, f := range strings.Fields(string(out)) {
		var pid int
		if _, err := fmt.Sscan(f, &pid); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// running are the processes of a host whose command line has a word.
func (b *bed) running(host, word string) []int {
	var list []int
	for _, pid := range b.inside(b.hosts[host]) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte(word)) {
			list = append(list, pid)
		}
	}
	return list
}

// command is nearmetal on the user's machine.
func (b *bed) command(args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := command(b.t, args...)
	cmd.Args = append([]string{"ip", "netns", "exec", b.front, nearmetal}, args...)
	path, err := exec.LookPath("ip")
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Path = path
	cmd.Env = append(os.Environ(), "NEARMETAL_RUNTIME_DIR="+b.path("front"), "PATH="+b.dir+":"+os.Getenv("PATH"))
	return cmd
}

func (b *bed) nm(args ...string) result {
	b.t.Helper()
	return finish(b.t, b.command(args...), "")
}

// launch starts nearmetal and returns when both hosts run a VM.
func (b *bed) launch(args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := b.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.launched = append(b.launched, cmd)
	until(b.t, "a VM on each host", func() bool {
		return len(b.running("alpha", "qemu-system")) > 0 && len(b.running("beta", "qemu-system")) > 0
	})
	return cmd
}

// quiet waits until nothing is left on the hosts but their sshd: no process, and in the directories named no cluster.
func (b *bed) quiet(dirs ...string) {
	b.t.Helper()
	left := ""
	defer func() {
		if left != "" {
			b.t.Log("left: ", left)
		}
	}()
	until(b.t, "nothing left on any host", func() bool {
		left = ""
		for _, name := range hostNames {
			for _, pid := range b.inside(b.hosts[name]) {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if len(line) > 0 && !bytes.HasPrefix(line, []byte("sshd: /usr/sbin/sshd")) {
					left += fmt.Sprintf("%s: %d %q; ", name, pid, line[:min(len(line), 100)])
				}
			}
		}
		for _, d := range dirs {
			entries, _ := os.ReadDir(b.path(d))
			for _, e := range entries {
				if e.IsDir() {
					left += b.path(d, e.Name()) + "; "
				}
			}
		}
		return left == ""
	})
}

var everyDir = []string{"front", "alpha/run", "beta/run"}

// twoHosts are flags of a cluster with a VM on each host.
var twoHosts = append([]string{"--hosts", "alpha,beta", "--vms", "2", "--vcpus", "1", "--no-share"}, small...)

// carriedByBoth are the lines of what the network of both VMs carried, each way.
var carriedByBoth = regexp.MustCompile(`(?s)is not counted: .*\nvm0 +eth0 +[1-9][^\n]* [1-9][^\n]*\n.*vm1 +eth0 +[1-9][^\n]* [1-9]`)

// A cluster over two hosts that are reached by ssh alone: its VMs are on both, an MPI program over them finds what
// it finds natively, every command reaches each VM, and nothing is left when it has ended.
func TestHosts(t *testing.T) {
	b := newBed(t)
	needs(t, "mpirun.openmpi", "busybox", "ss")
	b.nm("plan", "--hosts", "alpha,beta", "--vms", "2").want(t, 0, "alpha", "beta")
	r := b.nm(append([]string{"up", "--name", "two"}, twoHosts...)...).want(t, 0)
	if r.out != "two\n" {
		t.Errorf("up printed %q", r.out)
	}
	for _, name := range hostNames {
		if n := len(b.running(name, "qemu-system")); n != 1 {
			t.Errorf("%s runs %d VMs", name, n)
		}
	}
	b.nm("ps", "two").want(t, 0, "vm0", "vm1", "alpha", "beta", "VMs of different hosts go by TCP")
	b.nm("exec", "--all", "two", "--", "hostname").want(t, 0, "vm0: vm0", "vm1: vm1")

	native := exec.Command("mpirun.openmpi", "--oversubscribe", "-n", "2", kernels+"/nm_cg", "--grid", "16")
	native.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := native.Output()
	if err != nil {
		t.Fatal(err)
	}
	r = b.nm("exec", "two", "--", "mpirun.openmpi", "-n", "2", kernels+"/nm_cg", "--grid", "16").want(t, 0, "vm0 vm1")
	if got, want := found.FindAllString(r.out, -1), found.FindAllString(string(out), -1); fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 4 {
		t.Errorf("over two hosts %v, natively %v", got, want)
	}

	// Another MPI on one of the hosts is said before any rank starts.
	b.write("mpirun.mixed", 0o755, "#!/bin/sh\ncase $(hostname) in vm0) exec mpirun.openmpi \"$@\";; esac\necho 'mpirun (Open MPI) 5.0.99'\n")
	oneLine(t, b.nm("exec", "two", "--", b.path("mpirun.mixed"), "-n", "2", "true").want(t, 125, " on host alpha and Open MPI 5.0.99 on host beta: "))

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("there and back"), 0o600); err != nil {
		t.Fatal(err)
	}
	// This host's /tmp is what VMs see: the name there is one that nothing else has.
	there := "two/vm1:/tmp/" + filepath.Base(b.dir)
	b.nm("cp", file, there).want(t, 0)
	b.nm("cp", there, file+".back").want(t, 0)
	if back, err := os.ReadFile(file + ".back"); err != nil || string(back) != "there and back" {
		t.Errorf("%q, %v", back, err)
	}
	b.nm("exec", "two/vm1", "--", "sh", "-c", "echo a mark >/dev/console").want(t, 0)
	until(t, "the console", func() bool { return strings.Contains(b.nm("logs", "two/vm1").want(t, 0).out, "a mark") })
	b.resets("two")
	b.nm("verify", "two").want(t, 0, "vm0: as planned", "vm1: as planned", "2 VMs: as planned")
	b.nm("pause", "two").want(t, 0)
	oneLine(t, b.nm("exec", "two", "--", "true").want(t, 125, "paused"))
	b.nm("resume", "two").want(t, 0)
	b.nm("exec", "two/vm1", "--", "hostname").want(t, 0, "vm1")

	// A launcher where the user types: its daemons call back over the connections to the hosts.
	r = b.nm("env", "two").want(t, 0, "export OMPI_MCA_plm_rsh_agent=")
	for _, launcher := range []string{"mpirun.openmpi --allow-run-as-root", "mpiexec.hydra"} {
		if _, err := exec.LookPath(strings.Fields(launcher)[0]); err != nil {
			continue
		}
		cmd := b.command()
		cmd.Args = []string{"ip", "netns", "exec", b.front, "sh", "-c", r.out + "\nexec " + launcher + " -n 2 hostname"}
		at := finish(t, cmd, "").want(t, 0)
		if got := strings.Fields(at.out); len(got) != 2 || !slices.Contains(got, "vm0") || !slices.Contains(got, "vm1") {
			t.Errorf("%s here started ranks in %q: %s", launcher, got, at.err)
		}
	}
	at := finish(t, b.command("shell", "--host", "two"), "mpirun.openmpi --allow-run-as-root -n 2 hostname\n").want(t, 0, "vm0", "vm1")
	if len(strings.Fields(at.out)) != 2 {
		t.Errorf("a shell here started ranks in %q: %s", at.out, at.err)
	}
	var usage []struct {
		VM            string
		State         string
		ResidentBytes uint64
	}
	r = b.nm("top", "--json", "two").want(t, 0)
	if err := json.Unmarshal([]byte(r.out), &usage); err != nil || len(usage) != 2 {
		t.Fatalf("%v: %s", err, r.out)
	}
	for i, u := range usage {
		if u.VM != fmt.Sprint("vm", i) || u.State != "ready" || u.ResidentBytes < 64<<20 {
			t.Errorf("top: %+v", u)
		}
	}
	b.nm("down", "two").want(t, 0)
	b.quiet(everyDir...)

	// The copy of the program is made once; one that was changed is made again.
	copies, _ := filepath.Glob(b.path("beta/cache/nearmetal/programs/*/bin/nearmetal"))
	if len(copies) != 1 {
		t.Fatalf("copies on beta: %v", copies)
	}
	if err := os.WriteFile(copies[0], []byte("#!/bin/sh\necho changed >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r = b.nm(append(append([]string{"run", "--host", "-v"}, twoHosts...), "--", "mpirun.openmpi", "-n", "2", kernels+"/nm_cg", "--grid", "16")...).
		want(t, 0, "vm0 vm1")
	// No rank counted, since a host with one VM has no region. What the VMs' network carried is said.
	if !carriedByBoth.MatchString(r.err) {
		t.Errorf("-v does not say what the VMs' interfaces carried: %s", r.err)
	}
	if got, want := found.FindAllString(r.out, -1), found.FindAllString(string(out), -1); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("a launcher here found %v, natively %v", got, want)
	}
	b.quiet(everyDir...)
}

// resets ends the connections between the hosts, again and again, while a program in one VM has a TCP connection to one
// in the other: the VMs see a pause, and nothing else.
func (b *bed) resets(cluster string) {
	t := b.t
	t.Helper()
	start := func(args ...string) (in io.WriteCloser, out io.Reader, cmd *exec.Cmd) {
		cmd = b.command(append([]string{"exec"}, args...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err = cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b.launched = append(b.launched, cmd)
		return in, out, cmd
	}
	_, heard, server := start(cluster+"/vm1", "--", "busybox", "nc", "-l", "-p", "7077")
	// The client tries until the server listens.
	said, _, client := start(cluster+"/vm0", "--", "sh", "-c", "until busybox nc vm1 7077; do :; done")
	for round := range 4 {
		text := bytes.Repeat([]byte(fmt.Sprintf("round %d of what goes from VM to VM\n", round)), 3000)
		if _, err := said.Write(text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(heard, got); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("round %d: %v, and what came is right: %v", round, err, bytes.Equal(got, text))
		}
		out, err := exec.Command("ip", "netns", "exec", b.hosts["alpha"], "ss", "-HKt", "dst", "198.18.77.3").CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) == 0 {
			t.Fatalf("no connection to the other host was ended: %v: %s", err, out)
		}
	}
	said.Close()
	if err := errors.Join(client.Wait(), server.Wait()); err != nil {
		t.Error(err)
	}
}

// What cannot be is said in a line, before anything boots.
func TestHostsRefused(t *testing.T) {
	b := newBed(t)
	machine, err := filepath.Abs("../topology")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		hosts string
		code  int
		words []string
	}{
		// ssh names the host or, where the route is lost a moment later, calls it UNKNOWN.
		{"alpha,nowhere", 125, []string{"host nowhere: ", ": No route to host"}},
		{"alpha,alpha", 2, []string{"alpha is there twice"}},
		{"alpha,alpha-too", 125, []string{"alpha and alpha-too are one host"}},
		{"old,beta", 125, []string{"host old: another version of nearmetal answers there"}},
		{"alpha," + machine + "/igb-sriov.tar.gz", 2, []string{"describes a machine"}},
		{"-oProxyCommand=x,alpha", 2, []string{"is not a host's name"}},
	} {
		r := b.nm("run", "--hosts", c.hosts, "--vms", "2", "--no-share", "--", "hostname").want(t, c.code, c.words...)
		oneLine(t, r)
	}
	b.quiet(everyDir...)
}

// A connection that the user shares (ControlMaster) is used, and is there afterwards. No other is made to that host.
func TestHostsShared(t *testing.T) {
	b := newBed(t)
	ssh := func(args ...string) {
		t.Helper()
		args = append([]string{"netns", "exec", b.front, "ssh", "-F", b.path("config")}, args...)
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	accepted := func(name string) int {
		log, err := os.ReadFile(b.path(name + ".log"))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(log, []byte("Accepted publickey"))
	}
	ssh("-f", "-N", "-M", "alpha")
	b.nm("plan", "--hosts", "alpha,beta", "--vms", "2").want(t, 0, "alpha", "beta")
	b.nm(append(append([]string{"run"}, twoHosts...), "--", "hostname")...).want(t, 0, "vm0")
	if a, b := accepted("alpha"), accepted("beta"); a != 1 || b < 2 {
		t.Errorf("alpha, whose connection is shared, has accepted %d connections, beta %d", a, b)
	}
	ssh("-O", "check", "alpha")
	ssh("-O", "exit", "alpha")
	b.quiet(everyDir...)
}

// Whatever of a cluster over two hosts is killed, nothing of it stays on either.
func TestHostsKilled(t *testing.T) {
	b := newBed(t)
	sleep := append(append([]string{"run"}, twoHosts...), "--", "sleep", "600")

	t.Run("front", func(t *testing.T) {
		b.t = t
		// A connection that the user shares stays when the command is killed that used it, and the VMs go all the same.
		end := b.ownConnection("alpha")
		cmd := b.launch(sleep...)
		cmd.Process.Kill()
		cmd.Wait()
		until(t, "the VMs and the part on alpha gone", func() bool {
			return len(b.running("alpha", "qemu-system")) == 0 && len(b.running("alpha", "host-part")) == 0
		})
		end()
		b.quiet("alpha/run", "beta/run")
		b.nm("ps").want(t, 0, "removed what cluster")
		b.quiet(everyDir...)
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		b.t = t
		cmd := b.launch(sleep...)
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		if c := cmd.ProcessState.ExitCode(); c != 130 {
			t.Errorf("exit status %d", c)
		}
		b.quiet(everyDir...)
	})
	t.Run("part", func(t *testing.T) {
		b.t = t
		cmd := b.launch(sleep...)
		for _, pid := range b.running("beta", "host-part") {
			unix.Kill(pid, unix.SIGKILL)
		}
		cmd.Wait()
		if c := cmd.ProcessState.ExitCode(); c != 125 || !strings.Contains(fmt.Sprint(cmd.Stderr), "host beta") {
			t.Errorf("exit status %d: %s", c, cmd.Stderr)
		}
		b.quiet("front", "alpha/run")
	})
	t.Run("connection", func(t *testing.T) {
		b.t = t
		b.nm("up", "--hosts", "alpha,beta", "--name", "cut", "--vms", "2", "--vcpus", "1", "--memory", "512MiB", "--no-share").want(t, 0)
		for _, pid := range b.running("beta", ": root") { // sshd, since OpenSSH 9.8 sshd-session
			unix.Kill(pid, unix.SIGKILL)
		}
		until(t, "vm1 lost", func() bool { return strings.Contains(b.nm("ps", "cut").out, "dead") })
		b.nm("ps", "cut").want(t, 0, "host beta")
		b.nm("exec", "cut/vm0", "--", "hostname").want(t, 0, "vm0")
		b.nm("down", "cut").want(t, 0)
		b.quiet(everyDir...)
	})
}

// A benchmark over two hosts that ssh reaches: MPI programs, and perftest's server and client, have a VM on each. The record
// and the report say on which hosts, and what the VMs carried, as no rank counts where no host has two VMs. What cannot be
// measured there is refused in a line.
func TestHostsBench(t *testing.T) {
	b := newBed(t)
	needs(t, "mpirun.openmpi", "ib_send_bw")
	out := b.path("bench")
	bench := func(args ...string) result {
		t.Helper()
		return b.nm(append([]string{"bench", "run", "--quick", "--repetitions", "1", "--mpi", "openmpi", "--hosts", "alpha,beta", "--vcpus", "1", "--network", "rxe", "--no-share"}, args...)...)
	}
	for words, args := range map[string][]string{
		"native programs would run on this machine alone": {"--variants", "native,vm", "osu/latency"},
		"do not get the same VMs":                         {"--vms", "3", "osu/latency"},
		"there is nothing to run on several hosts":        {"--out", b.path("none"), "stream"},
		"hosts are Slurm's choice":                        {"--nodes", "2", "osu/latency"},
	} {
		if r := bench(args...); r.code == 0 || !strings.Contains(r.err, words) {
			t.Errorf("%v: %d: %s", args, r.code, r.err)
		}
	}
	bench("--traffic", "--memory", "512MiB", "--set", "latency.sizes=8", "--set", "gid=1", "--set", "device=rxe0", "--out", out, "osu/latency", "perftest/send_bw").want(t, 0)
	var run struct {
		SSHHosts []string `json:"ssh_hosts"`
		Host     struct{ Name, Acceleration string }
		Variants []struct {
			VMs   int
			Cores int
		}
		Traffic []struct {
			Case    string
			Carried []struct {
				VM, Interface  string
				Received, Sent uint64
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &run); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(run.SSHHosts) != "[alpha beta]" || run.Host.Name != "alpha" || len(run.Variants) != 1 || run.Variants[0].VMs != 1 || run.Variants[0].Cores != 1 {
		t.Errorf("%+v", run)
	}
	sent := map[string]bool{}
	for _, tr := range run.Traffic {
		for _, c := range tr.Carried {
			if c.Sent > 0 {
				sent[c.VM+" "+c.Interface] = true
			}
		}
	}
	if len(run.Traffic) != 1 || run.Traffic[0].Case != "osu/latency" || !sent["vm0 eth0"] || !sent["vm1 eth0"] {
		t.Errorf("carried: %+v", run.Traffic)
	}
	samples, err := os.ReadFile(filepath.Join(out, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"case":"osu/latency"`, `"case":"perftest/send_bw"`} {
		if !bytes.Contains(samples, []byte(name)) {
			t.Errorf("no %s: %s", name, samples)
		}
	}
	b.nm("report", out).want(t, 0, "What each VM sent to each other is not counted", "vm1")
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	for _, part := range []string{"<td>vm0<td>eth0<td>", "<td>vm1<td>eth0<td>", "<dd>alpha, beta, reached by ssh</dd>"} {
		if !bytes.Contains(page, []byte(part)) {
			t.Errorf("the page has no %q (%v)", part, err)
		}
	}
	b.quiet(everyDir...)
}
