package job

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
	"nearmetal/internal/load"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
)

// RunOptions say what cluster to boot and what to run in it.
type RunOptions struct {
	Cluster  cluster.Start
	Events   cluster.Events // called while the cluster starts
	Args     []string
	Where    Where
	NoPrefix bool
	NoInput  bool              // the command has no standard input
	Booted   func()            // called when the VMs are ready, before the command starts
	Notice   func(line string) // a line that the user should read
	Traffic  *Traffic          // nil: messages are not counted
}

// Where is where the command of a Run runs.
type Where int

// The places.
const (
	// Fitting is OnHost for MPI launchers and for scripts that call one, Each for all else.
	Fitting Where = iota
	OnHost        // once on this host, where MPI launchers put their ranks into the VMs
	Each          // once in every VM
)

// Run boots a cluster, runs a command in it, and ends it; it returns the command's exit
// status. The first signal ends the boot, or goes on to the command; a second one that
// asks for the end (SIGINT, SIGTERM, SIGHUP) does not wait for the command any more.
func Run(o RunOptions, s session.Streams) (code int, err error) {
	sigs, stop := session.Signals()
	defer stop()
	if o.NoInput {
		s.In = nil
	}
	// Before anything boots: a command that cannot work should say so at once.
	if missing(o) {
		o.Notice(o.Args[0] + ": no such program on this host, whose files the VMs have")
		return 127, nil // as a shell
	}
	what, err := look(o)
	if err != nil {
		return 0, err
	}
	if what.script != "" {
		o.Notice(fmt.Sprintf("%s calls %s: it runs once, and %[2]s puts the ranks into the VMs (--host leaves this line out; --each runs it in every VM)",
			what.script, what.name))
	}
	if o.Traffic != nil {
		o.Cluster.Spec = counted(o.Cluster.Spec)
		if o.Traffic.Dir != "" {
			if err := os.Mkdir(o.Traffic.Dir, 0o700); err != nil {
				return 0, fmt.Errorf("the directory for counts of messages has to be a new one: %w", err)
			}
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	booted, listened := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(listened)
		for {
			select {
			case sig := <-sigs:
				if session.Ends(sig) {
					cancel(&Interrupted{sig.(syscall.Signal)})
					return
				}
			case <-booted:
				return
			}
		}
	}()
	if what.once && launch.Named(o.Args[0]) && !strings.Contains(o.Args[0], "/") {
		o.Cluster.Launcher = o.Args[0]
	}
	c, err := cluster.Up(ctx, o.Cluster, o.Events)
	close(booted)
	<-listened
	if o.Booted != nil {
		o.Booted()
	}
	if err != nil {
		return 0, err
	}
	if cause := context.Cause(ctx); cause != nil { // it came at the last moment
		hurry, cancel := context.WithCancel(context.Background())
		cancel()
		c.Down(hurry)
		return 0, cause
	}
	j := &running{o: o, c: c, s: s, gone: make(chan struct{})}
	command, relayed := j.relay(sigs)
	if r := c.Record(); o.Traffic != nil && Uncounted(&r) {
		j.before = Interfaces(r.Name)
	}
	code, err = j.command(command, what)
	relayed()
	if j.why == nil {
		select {
		case j.why = <-c.Lost(): // a launcher on the host may have noticed first
		default:
		}
	}
	if j.why != nil { // the command was given up: what it says of that says less
		code, err = 0, j.why
	}
	if j.why == nil && err == nil {
		if o.Traffic != nil {
			j.traffic()
		}
		if r := c.Record(); what.once && code != 0 {
			warnLaunched(&r, j.short, s.Err)
		}
		j.lost()
	}
	end, hurry := context.WithCancel(context.Background())
	defer hurry()
	go func() { // whoever is impatient now does not wait for the VMs
		for {
			select {
			case sig := <-sigs:
				if session.Ends(sig) {
					hurry()
				}
			case <-end.Done():
				return
			}
		}
	}()
	var interrupted *Interrupted
	if errors.As(err, &interrupted) { // no waiting for the VMs either
		hurry()
	}
	if e := c.Down(end); e != nil && err == nil {
		err = e
	}
	return code, err
}

// seen is what the command of a Run is.
type seen struct {
	once     bool            // it runs once, and what it launches goes into the VMs
	launcher launch.Launcher // that it is, or calls; the zero value: not known
	script   string          // what the script is called that calls a launcher; "": none does
	name     string          // of the launcher in the script
}

// look finds out what the command is. In a root that is not the host's only a launcher's name can be
// looked at: it cannot be asked for its version before the VMs run.
func look(o RunOptions) (seen, error) {
	var w seen
	var err error
	// What other hosts have cannot be looked at from here.
	there := o.Cluster.Spec.Root != "host" || len(o.Cluster.Spec.Placement.Hosts) > 0
	switch {
	case o.Where == Each:
		return w, nil
	case there:
		w.once = launch.Named(o.Args[0])
	default:
		w.launcher, w.once, err = launch.Detect(context.Background(), o.Args, exec.LookPath)
	}
	if err != nil || w.once {
		return w, err
	}
	name, script := launch.Calls(o.Args, exec.LookPath)
	if name != "" && !there { // one that is not known is the script's business
		w.launcher, _, _ = launch.Detect(context.Background(), []string{name}, exec.LookPath)
	}
	if o.Where == Fitting && name != "" {
		w.name, w.script = name, script
	}
	w.once = o.Where == OnHost || name != ""
	return w, nil
}

// missing reports whether the VMs, which have this host's files, will not find the program, because it is not here.
func missing(o RunOptions) bool {
	s := o.Cluster.Spec
	name := o.Args[0]
	if _, path := s.Env["PATH"]; s.Root != "host" || len(s.Placement.Hosts) > 0 || path || strings.HasPrefix(name, "nearmetal") {
		return false
	}
	if slices.ContainsFunc(s.Shares, func(s spec.Share) bool { return s.Target != "" && s.Target != s.Path }) {
		return false // there may be more in the VMs
	}
	for _, own := range []string{"/proc/", "/sys/", "/dev/", "/run/"} {
		if strings.HasPrefix(name, own) {
			return false
		}
	}
	_, err := exec.LookPath(name)
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// Interrupted is the end of a run by a signal: before its command had started, or by a
// second one, which does not wait for it.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return "interrupted: " + i.Signal.String() }

// running is a command that runs in a cluster.
type running struct {
	o    RunOptions
	c    *cluster.Cluster
	s    session.Streams
	gone chan struct{} // closed when the command is to be given up
	why  error         // set before that
	// short: the first VM, in which the launcher ran, is known to have run out of memory.
	short bool
	// before is what the VMs' interfaces had carried when the command started, where ranks do not count.
	before map[string][]load.Interface
}

// relay passes signals on to the command by way of the channel that it returns, and returns
// the command up after a second one, the loss of a VM, or `nearmetal down`. Its function
// waits until that has ended.
func (j *running) relay(sigs <-chan os.Signal) (<-chan os.Signal, func()) {
	out := make(chan os.Signal, 16)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		asked := 0
		for {
			select {
			case sig := <-sigs:
				if session.Ends(sig) {
					if asked++; asked > 1 {
						j.why = &Interrupted{sig.(syscall.Signal)}
						close(j.gone)
						return
					}
				}
				out <- sig
			case err := <-j.c.Lost():
				j.why = err
				close(j.gone)
				return
			case <-j.c.Asked():
				j.why = errors.New("the cluster was ended by nearmetal down")
				close(j.gone)
				return
			case <-stop:
				return
			}
		}
	}()
	return out, func() { close(stop); <-stopped }
}

// command runs the command where it belongs.
func (j *running) command(sigs <-chan os.Signal, what seen) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-j.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	r := j.c.Record()
	if what.once {
		j.hint(what.launcher, &r)
		switch why := needsVM(what.launcher); {
		case j.o.Where == OnHost:
			return j.onHost(ctx, sigs, &r)
		case !onHost(&r):
		case why != "" && r.Spec.Launcher == "auto":
			j.o.Notice("the launcher runs in " + r.VMs[0].Name + ": " + why)
		default:
			return j.onHost(ctx, sigs, &r)
		}
	}
	cl, err := client.Connect(ctx, r.Name)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	e, err := command(&r, ExecOptions{Args: j.o.Args, Env: j.report(&r)})
	if err != nil {
		return 0, err
	}
	s := patient(j.s)
	if what.once {
		if err := launchable(ctx, cl, e); err != nil {
			return 0, err
		}
		var st guest.Status
		st, err = session.Run(ctx, cl.VM(r.VMs[0].Name), e, s, sigs)
		j.short, st.OutOfMemory = st.OutOfMemory, false // all VMs are asked in the end
		return ended(&r, r.VMs[0].Name, st, err, s.Err)
	}
	code, _, err := everywhere(ctx, cl, e, j.o.NoPrefix, s, sigs)
	return code, err
}

// lost warns of files that go with the VMs.
func (j *running) lost() {
	cl, err := client.Connect(context.Background(), j.c.Name())
	if err != nil {
		return
	}
	defer cl.Close()
	for _, line := range Lost(cl) {
		j.o.Notice(line)
	}
}

// onHost runs an MPI launcher on this host, as the user would, in an environment that
// sends its ranks into the VMs.
func (j *running) onHost(ctx context.Context, sigs <-chan os.Signal, r *state.Record) (int, error) {
	env, err := hostEnvironment(r)
	if err != nil {
		return 0, err
	}
	env = append(env, session.Pairs(j.report(r))...)
	return runHere(ctx, sigs, j.o.Args, env, j.s)
}

// report is what makes the transport for UCX say in one line whether it is in the ranks' UCX, if that is wanted.
func (j *running) report(r *state.Record) map[string]string {
	if r.UCX == "" || !j.o.Cluster.Verbose {
		return nil
	}
	return map[string]string{"NEARMETAL_UCX_REPORT": "1"}
}

// needsVM returns the reason for which a launcher cannot run on this host.
func needsVM(l launch.Launcher) string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	return launch.NeedsVM(l, addrs)
}

// hint warns of what will surprise the user of a launcher.
func (j *running) hint(l launch.Launcher, r *state.Record) {
	if w := launch.CrowdedWarning(j.o.Args, r.Hosts()); w != "" {
		j.o.Notice(w)
	}
	notices := launch.UCXNotices(append(os.Environ(), session.Pairs(r.Spec.Env)...))
	// Over the region alone nothing waits for a rank that has left: such a library ends as others do. A card is used beside it.
	region := r.UCX != "" && len(r.Overlay) == 0 && len(notices) == 0 && len(r.Devices()) == 0
	if w := l.HangWarning(len(r.Everywhere())); w != "" && !region {
		j.o.Notice(w)
	}
	if j.o.Cluster.Verbose && r.Fabric != "" && r.UCX == "" && l.WithoutFabric() {
		j.o.Notice(l.String() + " has no libfabric: its messages between VMs go over their network, not over the region (docs/ucx.md)")
	}
	// A library that has UCX only has no other way to the region.
	if r.UCX != "" && (j.o.Cluster.Verbose || l.WithoutFabric()) {
		for _, line := range notices {
			j.o.Notice(line)
		}
	}
}
