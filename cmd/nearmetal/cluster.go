package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
	"nearmetal/internal/session"
	"nearmetal/internal/terminal"
)

// Set here: only commands that deal with clusters know their names.

func init() {
	completeClusters = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		list, _ := state.List()
		for _, r := range list {
			if r.State != state.Dead {
				names = append(names, cobra.CompletionWithDesc(r.Name, fmt.Sprintf("%s, %s", counted(len(r.VMs), "VM", "VMs"), stateOf(&r))))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCluster completes a first argument that is the name of a cluster.
func completeCluster(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeClusters(cmd, args, typed)
}

// addClusterNameFlag adds -c, the cluster that a command acts on.
func addClusterNameFlag(cmd *cobra.Command) *string {
	name := cmd.Flags().StringP("cluster", "c", "", "`NAME` of the cluster (default $NEARMETAL_CLUSTER, or the only one that runs)")
	if err := cmd.RegisterFlagCompletionFunc("cluster", completeClusters); err != nil {
		panic(err)
	}
	return name
}

// addVMFlag adds --vm; what describes the command's effect on the VM.
func addVMFlag(cmd *cobra.Command, what string) *string {
	vm := cmd.Flags().String("vm", "", "`VM` "+what+" (the older form of NAME/VM; default the first)")
	if err := cmd.RegisterFlagCompletionFunc("vm", completeVMs); err != nil {
		panic(err)
	}
	return vm
}

// completeVMs completes the names of a cluster's VMs. Commands name the cluster by --cluster or, if they run no
// program, by their argument.
func completeVMs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	name := job.ParseTarget(firstArg(args)).Cluster
	if cmd.Flags().Lookup("cluster") != nil {
		name, _ = cmd.Flags().GetString("cluster")
	}
	var names []string
	if r, err := state.Find(name); err == nil {
		names = vmNames(r)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func vmNames(r *state.Record) []string {
	var names []string
	for _, v := range r.VMs {
		names = append(names, v.Name)
	}
	return names
}

// firstArg returns the first argument, or "" without arguments.
func firstArg(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return ""
}

// interruptible returns a context that is canceled by the first signal to end this process. A second signal is no
// longer caught, so that it ends the process at once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		select {
		case s := <-c:
			cancel(exitSignal(s.(unix.Signal)))
			signal.Stop(c)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}

// addBootFlags adds the flags of a command that boots a cluster. The returned function reads them, prints notices on p,
// removes the remains of dead clusters, and returns the parameters of the start, with its events, which are shown on p
// until booted is called.
func addBootFlags(cmd *cobra.Command) func(p *terminal.Progress) (s cluster.Start, ev cluster.Events, booted func(), err error) {
	read := addClusterFlags(cmd)
	noVerify := addNoVerifyFlag(cmd)
	timeout := addBootTimeoutFlag(cmd)
	verbose := cmd.Flags().BoolP("verbose", "v", false, "report the transport of MPI messages; run: at the end also what was sent")
	return func(p *terminal.Progress) (s cluster.Start, ev cluster.Events, booted func(), err error) {
		c, notices, err := read()
		if err != nil {
			return s, ev, nil, err
		}
		if err := fleet.CheckHosts(c); err != nil && len(c.Placement.Hosts) > 0 {
			return s, ev, nil, &usageError{err}
		}
		for _, line := range notices {
			if strings.HasPrefix(line, "note: ") {
				p.Notef("%s", line)
			} else {
				p.Printf("%s", line)
			}
		}
		if _, err := state.Base(); err != nil {
			return s, ev, nil, err
		}
		// Remains of another cluster that cannot be removed do not prevent this start.
		if err := sweep(p); err != nil {
			for _, l := range strings.Split(err.Error(), "\n") {
				p.Printf("%s", l)
			}
		}
		ev, booted = bootEvents(p)
		return cluster.Start{
			Spec: c, Command: strings.Join(os.Args, " "),
			BootTimeout: time.Duration(*timeout), NoVerify: *noVerify, Quiet: quiet(cmd), Verbose: *verbose,
		}, ev, booted, nil
	}
}

// sweep removes the remains of dead clusters, and reports them.
func sweep(p *terminal.Progress) error {
	lines, err := state.Sweep()
	for _, l := range lines {
		p.Printf("%s", l)
	}
	return err
}

// bootEvents shows a start on p.
func bootEvents(p *terminal.Progress) (cluster.Events, func()) {
	var step *terminal.Step
	stage := ""
	return cluster.Events{
			Notice: func(line string) { p.Printf("%s", line) },
			Stage: func(name string, done, total int) {
				if name != stage {
					step.Done()
					stage, step = name, p.Start(name)
				}
				if total > 0 {
					step.Detail("%d of %d ready", done, total)
				}
			},
		}, func() {
			step.Done()
		}
}

// age is a time span as ps shows it.
func age(since time.Time) string {
	d := time.Since(since).Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}

// streams returns the standard streams of a command.
func streams(cmd *cobra.Command) session.Streams {
	return session.Streams{In: cmd.InOrStdin(), Out: bare(cmd.OutOrStdout()), Err: cmd.ErrOrStderr()}
}
