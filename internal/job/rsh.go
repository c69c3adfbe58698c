package job

import (
	"context"
	"fmt"
	"os"

	"nearmetal/internal/cluster"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
)

// Rsh is the remote shell of an MPI launcher on this host: args are those of ssh. It runs
// the command in the VM that they name, by name or address, and gives its exit status.
func Rsh(args []string, s session.Streams) (int, error) {
	host, words, err := launch.RshArgs(args)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	c, err := cluster.Connect(ctx, "")
	if err != nil {
		return 0, err
	}
	defer c.Close()
	vm := ""
	for _, v := range c.Record.VMs {
		if v.Name == host || v.IP == host {
			vm = v.Name
		}
	}
	if vm == "" {
		return 0, fmt.Errorf("rsh: cluster %s has no VM %q", c.Record.Name, host)
	}
	st, err := setup(&c.Record, launch.OnHost, false)
	if err != nil {
		return 0, err
	}
	words = launch.CallBack(words, cluster.UplinkHost, st.Interface)
	env := session.Environment(launch.AgentEnv(os.Environ()), session.Pairs(c.Record.Spec.Env))
	e := session.Caller(launch.RshCommand(words, os.Getenv("SHELL")), env)
	sigs, stop := session.Signals()
	defer stop()
	var status guest.Status
	status, err = session.Run(ctx, c.VM(vm), e, s, sigs)
	return ended(status, err, s.Err)
}
