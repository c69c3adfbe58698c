// Package bed is a Slurm cluster on this machine, for tests and benchmarks: real munged,
// slurmctld and slurmds, as children of this process, in a temporary directory and on free
// ports, without systemd. Nothing of it outlives Stop; what is left where this process is killed, the
// next Start reaps.
package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Options of a cluster.
type Options struct {
	Nodes       int    // slurmds: n1, n2, …
	CPUs        int    // of each node, as Slurm counts them
	MemoryMB    int    // of each node
	RegionBytes string // GRES region of each node, "1G"
	Gres        string // all GRES of each node instead, "vf:igb:2,region:1G": gres.conf is among Files then
	Plugstack   string // contents of plugstack.conf
	Cgroup      bool   // proctrack/cgroup and task/cgroup instead of proctrack/linuxproc
	CgroupV2    bool   // with Cgroup: the unified hierarchy, without systemd
	Networks    bool   // each node has a network and an address of its own, instead of the loopback
	Accounting  bool   // slurmdbd and its database, for sacct
	MPI         string // MpiDefault; "": none
	Extra       string // more lines for slurm.conf
	// Site is a slurm.conf of one node, called Node, instead of ours: of it only what distinguishes this
	// cluster from others on the machine is changed, by lines behind it.
	Site, Node string
	// Files are written beside slurm.conf, by their names; those of the same name as ours
	// replace them.
	Files map[string]string
}

// Bed is a cluster that runs.
type Bed struct {
	Dir  string // everything is below; every user may read it (what is secret has modes of its own)
	o    Options
	host string

	munged, ctld *daemon
	db, dbd      *daemon // of accounting; nil without
	nodes        map[string]*daemon
	port         int
}

// Programs that a cluster needs; Missing names the first that is not here.
var programs = []string{"munged", "mungekey", "slurmctld", "slurmd", "srun", "sbatch", "scontrol"}

// Missing names a program that the cluster needs and that is not installed, or returns "".
func Missing() string {
	for _, p := range programs {
		if _, err := find(p); err != nil {
			return p
		}
	}
	return ""
}

// find looks for a program as root's PATH would.
func find(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s is installed: run scripts/install.sh slurm", name)
}

// Start starts a cluster and waits until its nodes are idle. It needs root.
func Start(o Options) (*Bed, error) {
	dir, err := Own("nms")
	if err != nil {
		return nil, err
	}
	b := &Bed{Dir: dir, o: o, nodes: map[string]*daemon{}}
	if err := b.start(); err != nil {
		err = fmt.Errorf("%w\n%s", err, b.Logs())
		b.Stop()
		return nil, err
	}
	return b, nil
}

func (b *Bed) start() error {
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		return err
	}
	dirs := []string{"munge", "state", "spool", "run", "log", "tmpfs"}
	for _, n := range b.Names() {
		dirs = append(dirs, "tmpfs/"+n) // of PMIx, which is per node
	}
	for _, d := range dirs {
		if err := os.Mkdir(b.Path(d), 0o755); err != nil {
			return err
		}
	}
	var err error
	if b.host, err = os.Hostname(); err != nil {
		return err
	}
	if b.port, err = freePorts(max(b.o.Nodes, 1) + 2); err != nil {
		return err
	}
	if err := b.writeFiles(); err != nil {
		return err
	}
	if b.o.Networks {
		if err := b.startNetworks(); err != nil {
			return err
		}
	}
	if b.o.Site != "" {
		if err := b.giveToSlurm("state", "run", "log"); err != nil {
			return err
		}
	}
	if err := b.startMunge(); err != nil {
		return err
	}
	if b.o.Accounting {
		if err := b.startAccounting(); err != nil {
			return err
		}
	}
	if b.ctld, err = b.daemon("slurmctld", "slurmctld", "-D", "-c", "-f", b.Conf()); err != nil {
		return err
	}
	for _, n := range b.Names() {
		if err := b.StartNode(n); err != nil {
			return err
		}
	}
	return b.AwaitIdle()
}

// startMunge starts munged with a key of its own and waits for its socket.
func (b *Bed) startMunge() error {
	key := b.Path("munge/munge.key")
	keygen, err := find("mungekey")
	if err != nil {
		return err
	}
	if out, err := exec.Command(keygen, "-c", "-k", key).CombinedOutput(); err != nil {
		return fmt.Errorf("mungekey: %w: %s", err, out)
	}
	if b.munged, err = b.daemon("munged", "munged", "--foreground", "--force", "--socket="+b.socket(), "--key-file="+key,
		"--pid-file="+b.Path("munge/munged.pid"), "--log-file="+b.Path("log/munged.log"), "--seed-file="+b.Path("munge/seed")); err != nil {
		return err
	}
	return Await("munged's socket", func() bool {
		_, err := os.Stat(b.socket())
		return err == nil
	})
}

// Path returns a path below the cluster's directory.
func (b *Bed) Path(name string) string { return filepath.Join(b.Dir, name) }

// Conf is the cluster's slurm.conf.
func (b *Bed) Conf() string { return b.Path("slurm.conf") }

func (b *Bed) socket() string { return b.Path("munge/munge.sock") }

// Names are those of the nodes.
func (b *Bed) Names() []string {
	if b.o.Site != "" {
		return []string{b.o.Node}
	}
	var names []string
	for i := 1; i <= b.o.Nodes; i++ {
		names = append(names, fmt.Sprint("n", i))
	}
	return names
}

// StartNode starts the slurmd of a node.
func (b *Bed) StartNode(name string) error {
	program, err := find("slurmd")
	if err != nil {
		return err
	}
	words := b.inNetwork(name, program, "-D", "-N", name, "-f", b.Conf())
	d, err := b.daemon("slurmd."+name, words[0], words[1:]...)
	if err == nil {
		b.nodes[name] = d
	}
	return err
}

// StopNode ends the slurmd of a node; its jobs go on.
func (b *Bed) StopNode(name string) {
	b.nodes[name].stop(syscall.SIGTERM)
}

// NodePID is the process of a node's slurmd.
func (b *Bed) NodePID(name string) int { return b.nodes[name].cmd.Process.Pid }

// AwaitIdle waits until every node that has a slurmd of ours is idle.
func (b *Bed) AwaitIdle() error {
	var gone, drained string
	err := Await("idle nodes", func() bool {
		for name, d := range b.nodes {
			select {
			case <-d.done:
				gone = name
				return true
			default:
			}
		}
		out, err := b.Command("sinfo", "-h", "-n", strings.Join(b.Names(), ","), "-o", "%T").Output()
		if err == nil && strings.Contains(string(out), "drained") {
			drained = string(out)
			return true // it stays so
		}
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
	if drained != "" {
		return fmt.Errorf("a node is drained: %s", strings.ReplaceAll(strings.TrimSpace(drained), "\n", ", "))
	}
	if gone != "" {
		return fmt.Errorf("the slurmd of %s has ended", gone)
	}
	return err
}

// Command prepares a command as root, whose Slurm is this cluster.
func (b *Bed) Command(name string, args ...string) *exec.Cmd {
	if path, err := find(name); err == nil {
		name = path
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = b.Dir
	cmd.Env = b.Environ("root", "/root")
	return cmd
}

// Environ is the environment of a user's commands.
func (b *Bed) Environ(user, home string) []string {
	return []string{"SLURM_CONF=" + b.Conf(), "PATH=/usr/local/bin:/usr/bin:/bin", "USER=" + user, "LOGNAME=" + user, "HOME=" + home, "LANG=C.UTF-8",
		// Natively all nodes have one address: the kernel's route to it is over lo, and Open MPI 5 takes none that
		// is not over the address's own interface unless it leaves routes alone.
		"OMPI_MCA_reachable=weighted",
		"MYSQL_UNIX_PORT=" + b.dbSocket()}
}

// Logs are the last lines of all logs, for somebody who has to find out what went wrong.
func (b *Bed) Logs() string {
	var s strings.Builder
	files, _ := filepath.Glob(b.Path("log/*"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if n := len(lines) - 25; n > 0 {
			lines = lines[n:]
		}
		fmt.Fprintf(&s, "== %s\n%s\n", filepath.Base(f), strings.Join(lines, "\n"))
	}
	return s.String()
}

// Stop ends the cluster and removes its directory.
func (b *Bed) Stop() error {
	if b.ctld != nil {
		b.endJobs()
	}
	for _, d := range b.nodes {
		d.stop(syscall.SIGTERM)
	}
	if b.ctld != nil {
		b.ctld.stop(syscall.SIGTERM)
	}
	b.stopAccounting()
	if b.munged != nil {
		b.munged.stop(syscall.SIGTERM)
	}
	return Remove(b.Dir)
}

// endJobs cancels all jobs and waits a while for their epilogs.
func (b *Bed) endJobs() {
	queue := func() []string {
		out, _ := b.Command("squeue", "-h", "-o", "%A").Output()
		return strings.Fields(string(out))
	}
	if jobs := queue(); len(jobs) > 0 {
		b.Command("scancel", jobs...).Run()
		Await("the end of all jobs", func() bool { return len(queue()) == 0 })
	}
}

// daemon is a child of ours.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// daemon starts a program whose output goes to log/NAME.out. It dies with this process.
func (b *Bed) daemon(name, program string, args ...string) (*daemon, error) {
	path := program
	if !filepath.IsAbs(path) {
		var err error
		if path, err = find(program); err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(b.Path("log/"+name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d := &daemon{cmd: exec.Command(path, args...), done: make(chan struct{})}
	d.cmd.Dir, d.cmd.Env = "/", b.Environ("root", "/root")
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // PDEATHSIG is about the thread: it has to stay
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.cmd.Wait()
			close(d.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return d, nil
}

// stop ends the daemon: by sig, and by SIGKILL if that does not do within Bound.
func (d *daemon) stop(sig syscall.Signal) {
	d.cmd.Process.Signal(sig)
	select {
	case <-d.done:
	case <-time.After(Bound):
		d.cmd.Process.Kill()
		<-d.done
	}
}

// Bound ends a test that hangs. No step takes a third of it on a machine at load 10 (docs/testing.md).
const Bound = 10 * time.Minute

// Await polls until f holds; what is named in the error when it does not within Bound.
func Await(what string, f func() bool) error {
	for end := time.Now().Add(Bound); ; time.Sleep(20 * time.Millisecond) {
		if f() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s", Bound, what)
		}
	}
}

// errUsed says that no ports were found.
var errUsed = errors.New("no free ports")
