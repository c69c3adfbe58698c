package job

import (
	"context"
	"path/filepath"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
)

// LauncherHere returns the whole environment (NAME=value) of an MPI launcher on this host that starts its ranks in
// the VMs of the cluster r, with over in addition to the caller's variables. ok is false if the launcher has to run
// in the first VM (see InVM).
func LauncherHere(r *state.Record, l launch.Launcher, over []string) (env []string, ok bool, err error) {
	if !onHost(r) || needsVM(l) != "" && r.Spec.Launcher == "auto" {
		return nil, false, nil
	}
	env, err = hostEnvironment(r)
	return append(env, over...), true, err
}

// InVM runs a command in a VM of the cluster r, as the caller, in the directory dir with over in addition to the
// caller's variables. When ctx ends, it is killed.
func InVM(ctx context.Context, r *state.Record, vm string, args []string, dir string, over []string, s session.Streams) (guest.Status, error) {
	c, err := client.Connect(ctx, r.Name)
	if err != nil {
		return guest.Status{}, err
	}
	defer c.Close()
	env, err := vmEnvironment(&c.Record, over, args[0])
	if err != nil {
		return guest.Status{}, err
	}
	e := session.Caller(args, env)
	if e.Dir, err = filepath.Abs(dir); err != nil {
		return guest.Status{}, err
	}
	e.NoStdin = true
	return session.Run(ctx, c.VM(vm), e, s, nil)
}
