package job

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
)

// Rsh is the remote shell of an MPI launcher on this host: args are ssh's. It runs the command in the VM that they
// name, by name or address, and returns its exit status.
func Rsh(args []string, s session.Streams) (int, error) {
	host, words, err := launch.RshArgs(args)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	c, err := client.Connect(ctx, "")
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Running(); err != nil {
		return 0, err
	}
	vm, away := "", false
	for i, v := range c.Record.Everywhere() {
		if v.Name == host || v.IP == host {
			vm, away = v.Name, !c.Record.Here(i)
		}
	}
	if vm == "" {
		return 0, fmt.Errorf("rsh: cluster %s has no VM %q", c.Record.Name, host)
	}
	there, err := inVM(&c.Record)
	if err != nil {
		return 0, err
	}
	back := state.UplinkHost
	if away {
		joining, cancel := context.WithTimeout(ctx, joinBound)
		defer cancel()
		if err := c.AwaitJoined(joining); err != nil {
			return 0, err
		}
		back = c.Record.HostAddress()
	}
	ports := launch.CallBackPorts(words)
	words = there.words(launch.CallBack(words, back, there.iface))
	environ := os.Environ()
	// A launcher may not have been started with nearmetal's variables, or with those of a time when its library was
	// not known, as in a batch script. Its ranks need all of them nevertheless. A cluster without variables for
	// launchers here can still run a plain command.
	if vars, err := LaunchVariables(&c.Record, environ); err == nil {
		environ = session.Environment(environ, vars)
	}
	env := session.Environment(there.words(launch.AgentEnv(environ)), session.Pairs(c.Record.Spec.Env))
	e := session.Caller(launch.RshCommand(words, os.Getenv("SHELL")), preloaded(&c.Record, env))
	e.HostPorts, e.HostPortsOptional = ports, away
	sigs, stop := session.Signals()
	defer stop()
	status, err := session.Run(ctx, c.VM(vm), e, patient(s), sigs)
	if err != nil && !c.Runs() {
		return lostShell, nil // the launcher has ended, and the cluster with it: nothing to report
	}
	return ended(&c.Record, vm, status, err, s.Err)
}

// joinBound bounds the time until the VMs on other hosts can be reached.
const joinBound = 2 * time.Minute

// lostShell is the exit status of a remote shell that lost its connection, as ssh's.
const lostShell = 255

// translation adapts a launcher's command line for its daemon: in the VM, the remote shell and the host files have
// other paths. The daemon checks them though it needs neither (Open MPI 4's exits if its remote shell does not
// exist).
type translation struct {
	*strings.Replacer
	iface string // the VMs' own network interface
}

func inVM(r *state.Record) (*translation, error) {
	here, err := setup(r, launch.OnHost, false)
	if err != nil {
		return nil, err
	}
	there, err := setup(r, launch.InVM, false)
	if err != nil {
		return nil, err
	}
	return &translation{strings.NewReplacer(
		here.Agent, there.Agent, here.OpenMPIHosts, there.OpenMPIHosts, here.MPICHHosts, there.MPICHHosts,
	), there.Interface}, nil
}

// words translates each word of a list.
func (t *translation) words(list []string) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = t.Replace(w)
	}
	return out
}
