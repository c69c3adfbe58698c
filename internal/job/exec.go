package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/session"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// ExecOptions state what to run in a running cluster, and where.
type ExecOptions struct {
	Cluster string            // see state.Find for ""
	VM      string            // "": the first
	All     bool              // once in every VM
	Args    []string          // the command; none: a login shell
	Env     map[string]string // overrides the caller's
	TTY     bool              // a terminal for the command
	NoInput bool
	Root    bool // as root of the VM
	// NoPrefix omits the VM's name before lines, with All.
	NoPrefix bool
}

// Exec runs a command in a VM, or in all, and returns its exit status.
func Exec(o ExecOptions, s session.Streams) (int, error) {
	ctx := context.Background()
	c, err := client.Connect(ctx, o.Cluster)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Running(); err != nil {
		return 0, err
	}
	e, err := command(&c.Record, o)
	if err != nil {
		return 0, err
	}
	if o.NoInput {
		s.In = nil
	}
	sigs, stop := session.Signals()
	defer stop()
	start := time.Now()
	// Requested from each program's agent, because another stream to each VM would last longer than the command true.
	e.AskWritten = true
	if o.All {
		code, wrote, err := everywhere(ctx, c, e, o.NoPrefix, patient(s), sigs)
		warnWritten(s.Err, c, wrote, start)
		return code, err
	}
	vm, err := c.Record.FindVM(o.VM)
	if err != nil {
		return 0, err
	}
	if err := launchable(ctx, c, e); err != nil {
		return 0, err
	}
	var st guest.Status
	if o.TTY {
		tty, ok := s.In.(*os.File)
		if !ok || !terminal.IsTerminal(tty) {
			return 0, errors.New("stdin is not a terminal: leave out --tty")
		}
		if os.Getenv("TERM") != "" {
			e.Env = session.Environment(e.Env, []string{"TERM=" + os.Getenv("TERM")})
		}
		st, err = session.Terminal(ctx, c.VM(vm), e, tty, sigs)
	} else {
		st, err = session.Run(ctx, c.VM(vm), e, patient(s), sigs)
	}
	if err == nil && !st.NothingWritten {
		warnWritten(s.Err, c, []string{vm}, start)
	}
	return ended(&c.Record, vm, st, err, s.Err)
}

// patient returns s with an input that does not stop this process if it is a terminal and the process is in the
// background.
func patient(s session.Streams) session.Streams {
	if f, ok := s.In.(*os.File); ok && terminal.IsTerminal(f) {
		s.In = terminal.Input(f)
	}
	return s
}

// Shell opens a login shell in a VM.
func Shell(o ExecOptions, s session.Streams) (int, error) {
	if in, ok := s.In.(*os.File); ok && terminal.IsTerminal(in) {
		o.TTY = true
	}
	sh := os.Getenv("SHELL")
	if sh == "" {
		sh = "/bin/sh"
	}
	// A root that is not the host's may not contain the user's shell.
	o.Args = []string{"/bin/sh", "-c", `[ -x "$1" ] && exec "$1" -l; exec /bin/sh -l`, "sh", sh}
	return Exec(o, s)
}

// ended reports the status of a command in a VM of r: the reason why it did not start, or may have ended, on standard
// error, the rest by the exit status.
func ended(r *state.Record, vm string, st guest.Status, err error, w io.Writer) (int, error) {
	if err != nil {
		return 0, &lines{err}
	}
	if st.ExitCode() != 0 {
		WarnMemory(r, vm, st, memoryOption, w)
	}
	if st.Message != "" {
		fmt.Fprintf(w, "nearmetal: %s\n", text.Clean(st.Message))
	}
	return st.ExitCode(), nil
}

// everywhere runs e in every VM of the cluster. It returns the exit status, and the VMs in which files may have been
// written outside the shares.
func everywhere(ctx context.Context, c *client.Client, e guest.Exec, noPrefix bool, s session.Streams, sigs <-chan os.Signal) (code int, wrote []string, err error) {
	vms := vmNames(&c.Record)
	noPrefix = noPrefix || len(vms) == 1 // with a single VM the source of the output is clear
	out := terminal.NewPrefixer(s.Out, vms, terminal.Coloured(s.Out))
	errs := terminal.NewPrefixer(s.Err, vms, terminal.Coloured(s.Err))
	res := session.Everywhere(ctx, c.Client, vms, e, s.In, func(vm string) (io.WriteCloser, io.WriteCloser) {
		if noPrefix {
			return open{s.Out}, open{s.Err}
		}
		return out.Writer(vm), errs.Writer(vm)
	}, sigs)
	for _, r := range res {
		if !r.Status.NothingWritten {
			wrote = append(wrote, r.VM)
		}
		if r.Err == nil && r.Status.ExitCode() != 0 {
			WarnMemory(&c.Record, r.VM, r.Status, memoryOption, s.Err)
		}
		if r.Err == nil && r.Status.Message != "" {
			fmt.Fprintf(s.Err, "nearmetal: %s: %s\n", r.VM, text.Clean(strings.TrimPrefix(r.Status.Message, r.VM+": ")))
		} else if r.Err == nil && r.Status.ExitCode() != 0 && len(res) > 1 {
			fmt.Fprintf(s.Err, "nearmetal: %s: %s\n", r.VM, r.Status)
		}
	}
	if code, err = session.Worst(res); err != nil {
		err = &lines{err}
	}
	return code, wrote, err
}

// lines is an error whose text has more than one line: for a lost VM, with the end of its console.
type lines struct{ error }

// Lines returns the lines to print.
func (l *lines) Lines() []string { return strings.Split(l.Error(), "\n") }

func (l *lines) Unwrap() error { return l.error }

// open is a writer without Close: the process's own streams.
type open struct{ io.Writer }

func (open) Close() error { return nil }

// command returns o's command as the caller would run it, in the environment of a VM.
func command(r *state.Record, o ExecOptions) (guest.Exec, error) {
	program := ""
	if len(o.Args) > 0 {
		program = o.Args[0]
	}
	env, err := vmEnvironment(r, session.Pairs(o.Env), program)
	if err != nil {
		return guest.Exec{}, err
	}
	e := session.Caller(o.Args, env)
	r.Caller.Become(&e)
	if o.Root {
		e.UID, e.GID, e.Groups = 0, 0, nil
		e.Env = session.Environment(e.Env, identity("0"))
	}
	return e, nil
}

// identity returns the variables that name the user with the number uid.
func identity(uid string) []string {
	u, err := user.LookupId(uid)
	if err != nil {
		n, _ := strconv.Atoi(uid)
		return []string{fmt.Sprintf("USER=%d", n), fmt.Sprintf("LOGNAME=%d", n), "HOME=/"}
	}
	return []string{"USER=" + u.Username, "LOGNAME=" + u.Username, "HOME=" + u.HomeDir}
}
