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

// RunOptions state which cluster to boot and what to run in it.
type RunOptions struct {
	Cluster  cluster.Start
	Events   cluster.Events // called while the cluster starts
	Args     []string
	Where    Where
	NoPrefix bool
	NoInput  bool              // the command has no standard input
	Booted   func()            // called when the VMs are ready, before the command starts
	Notice   func(line string) // prints a line for the user
	Traffic  *Traffic          // nil: messages are not counted
}

// Where is the place in which the command of a Run runs.
type Where int

// The places.
const (
	// Fitting is OnHost for MPI launchers and for scripts that call one, Each for all other commands.
	Fitting Where = iota
	OnHost        // once on this host, from which MPI launchers start their ranks in the VMs
	Each          // once in every VM
)

// Run boots a cluster, runs a command in it, and ends it; it returns the command's exit status. The first signal ends
// the boot, or is passed on to the command; a second one that requests the end (SIGINT, SIGTERM, SIGHUP) no longer
// waits for the command.
func Run(o RunOptions, s session.Streams) (code int, err error) {
	sigs, stop := session.Signals()
	defer stop()
	if o.NoInput {
		s.In = nil
	}
	// A command that cannot work is reported before anything boots.
	if missing(o) {
		o.Notice(o.Args[0] + ": no such program on this host, whose files the VMs have")
		return 127, nil // as a shell does
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
	if cause := context.Cause(ctx); cause != nil { // the signal came at the last moment
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
	if j.why != nil { // the command was terminated: its own report is less precise
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
	go func() { // a further signal does not wait for the VMs
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
	if errors.As(err, &interrupted) { // the VMs are not waited for either
		hurry()
	}
	if e := c.Down(end); e != nil && err == nil {
		err = e
	}
	return code, err
}

// seen is the kind of a Run's command.
type seen struct {
	once     bool            // it runs once, and the processes it launches run in the VMs
	launcher launch.Launcher // the launcher that it is, or calls; the zero value: not known
	script   string          // name of the script that calls a launcher; "": none does
	name     string          // of the launcher in the script
}

// look determines the kind of the command. In a root that is not the host's only a launcher's name can be checked,
// because its version cannot be queried before the VMs run.
func look(o RunOptions) (seen, error) {
	var w seen
	var err error
	// Files of other hosts cannot be checked from here.
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
	if name != "" && !there { // an unknown launcher is left to the script
		w.launcher, _, _ = launch.Detect(context.Background(), []string{name}, exec.LookPath)
	}
	if o.Where == Fitting && name != "" {
		w.name, w.script = name, script
	}
	w.once = o.Where == OnHost || name != ""
	return w, nil
}

// missing reports whether the VMs, which have this host's files, will not find the program because it does not exist
// here.
func missing(o RunOptions) bool {
	s := o.Cluster.Spec
	name := o.Args[0]
	if _, path := s.Env["PATH"]; s.Root != "host" || len(s.Placement.Hosts) > 0 || path || strings.HasPrefix(name, "nearmetal") {
		return false
	}
	if slices.ContainsFunc(s.Shares, func(s spec.Share) bool { return s.Target != "" && s.Target != s.Path }) {
		return false // more may exist in the VMs
	}
	for _, own := range []string{"/proc/", "/sys/", "/dev/", "/run/"} {
		if strings.HasPrefix(name, own) {
			return false
		}
	}
	_, err := exec.LookPath(name)
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// Interrupted is the end of a run by a signal: before its command started, or by a second one, which does not wait
// for it.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return "interrupted: " + i.Signal.String() }

// running is a command that runs in a cluster.
type running struct {
	o    RunOptions
	c    *cluster.Cluster
	s    session.Streams
	gone chan struct{} // closed when the command is to be terminated
	why  error         // set before that
	// short: the first VM, in which the launcher ran, is known to have run out of memory.
	short bool
	// before has the counters of the VMs' interfaces when the command started, if ranks do not count.
	before map[string][]load.Interface
}

// relay passes signals on to the command by the channel that it returns, and terminates the command after a second
// one, the loss of a VM, or `nearmetal down`. Its function waits until that has ended.
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

// command runs the command in its place.
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
		j.short, st.OutOfMemory = st.OutOfMemory, false // all VMs are queried at the end
		return ended(&r, r.VMs[0].Name, st, err, s.Err)
	}
	code, _, err := everywhere(ctx, cl, e, j.o.NoPrefix, s, sigs)
	return code, err
}

// lost warns of files that are lost with the VMs.
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

// onHost runs an MPI launcher on this host, as the user would, in an environment that starts its ranks in the VMs.
func (j *running) onHost(ctx context.Context, sigs <-chan os.Signal, r *state.Record) (int, error) {
	env, err := hostEnvironment(r)
	if err != nil {
		return 0, err
	}
	env = append(env, session.Pairs(j.report(r))...)
	return runHere(ctx, sigs, j.o.Args, env, j.s)
}

// report returns the variables that make the transport for UCX print one line on whether the ranks' UCX uses it, if
// requested.
func (j *running) report(r *state.Record) map[string]string {
	if r.UCX == "" || !j.o.Cluster.Verbose {
		return nil
	}
	return map[string]string{"NEARMETAL_UCX_REPORT": "1"}
}

// needsVM returns the reason why a launcher cannot run on this host.
func needsVM(l launch.Launcher) string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	return launch.NeedsVM(l, addrs)
}

// hint warns of behaviour of a launcher that may surprise the user.
func (j *running) hint(l launch.Launcher, r *state.Record) {
	if w := launch.CrowdedWarning(j.o.Args, r.Hosts()); w != "" {
		j.o.Notice(w)
	}
	notices := launch.UCXNotices(append(os.Environ(), session.Pairs(r.Spec.Env)...))
	// Over the region only, nothing waits for a rank that has left, so such a library ends like others. A card is
	// used in addition.
	region := r.UCX != "" && len(r.Overlay) == 0 && len(notices) == 0 && len(r.Devices()) == 0
	if w := l.HangWarning(len(r.Everywhere())); w != "" && !region {
		j.o.Notice(w)
	}
	if j.o.Cluster.Verbose && r.Fabric != "" && r.UCX == "" && l.WithoutFabric() {
		j.o.Notice(l.String() + " has no libfabric: its messages between VMs go over their network, not over the region (docs/ucx.md)")
	}
	// A library with only UCX has no other way to use the region.
	if r.UCX != "" && (j.o.Cluster.Verbose || l.WithoutFabric()) {
		for _, line := range notices {
			j.o.Notice(line)
		}
	}
}
