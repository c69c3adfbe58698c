package job

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
)

// Place is a file on this host (VM is "") or in a VM. Without Cluster, VM may be the name of a cluster and then
// selects its first VM, depending on the running clusters.
type Place struct{ Cluster, VM, Path string }

// ParsePlace parses CLUSTER[/VM]:PATH, VM:PATH or a path of this host. As with scp, a path of this host that contains
// a colon must begin with a dot or a slash: ./a:b.
func ParsePlace(s string) Place {
	vm, p, ok := strings.Cut(s, ":")
	if !ok || vm == "" {
		return Place{Path: s}
	}
	name, rest, slash := strings.Cut(vm, "/")
	switch {
	case !slash:
		return Place{VM: vm, Path: p}
	case spec.CheckName(name) == nil && rest != "" && !strings.Contains(rest, "/"):
		return Place{name, rest, p}
	}
	return Place{Path: s}
}

// settle finds the cluster and the VM of a place in a VM. name is the cluster that was named separately, or "".
func (p *Place) settle(name string) error {
	if p.Cluster != "" {
		name = p.Cluster
	} else if name == "" || name == p.VM {
		if r, err := state.Find(p.VM); err == nil {
			name, p.VM = r.Name, ""
		}
	}
	r, err := state.Find(name)
	if err != nil {
		if list, _ := state.List(); p.Cluster == "" && name == "" && len(list) > 0 {
			err = fmt.Errorf("%s:%s: %w: "+placeForms, p.VM, p.Path, err)
		}
		return err
	}
	vm, err := r.FindVM(p.VM)
	if err != nil && p.Cluster == "" {
		err = fmt.Errorf("%w, and no cluster %q runs: "+placeForms, err, p.VM)
	}
	p.Cluster, p.VM = r.Name, vm
	return err
}

// placeForms ends the error for a place that names no VM.
const placeForms = "write NAME:PATH or NAME/VM:PATH (./ before a file of this host)"

// Copy copies a file or a directory between this host and a VM, exactly one of from and to, as the caller. name is a
// cluster, or "".
func Copy(ctx context.Context, name string, from, to Place) error {
	remote := &from
	if to.VM != "" {
		remote = &to
	}
	if err := remote.settle(name); err != nil {
		return err
	}
	c, err := client.Connect(ctx, remote.Cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Running(); err != nil {
		return err
	}
	if !path.IsAbs(remote.Path) {
		return fmt.Errorf("%s:%s: a path in a VM must be absolute", remote.VM, remote.Path)
	}
	e := session.Caller(nil, nil)
	c.Record.Caller.Become(&e)
	k := guest.Copy{VM: remote.VM, UID: e.UID, GID: e.GID, Groups: e.Groups}
	if to.VM != "" {
		k.Local, k.Remote = from.Path, to.Path
		if strings.HasSuffix(to.Path, "/") || isDirIn(ctx, c, e, remote.VM, to.Path) {
			k.Remote = path.Join(to.Path, filepath.Base(filepath.Clean(from.Path)))
		}
		return c.Push(ctx, k)
	}
	k.Local, k.Remote = to.Path, path.Clean(from.Path)
	if fi, err := os.Stat(to.Path); err == nil && fi.IsDir() || strings.HasSuffix(to.Path, "/") {
		k.Local = filepath.Join(to.Path, path.Base(k.Remote))
	}
	return c.Pull(ctx, k)
}

// isDirIn reports whether a path in a VM is a directory.
func isDirIn(ctx context.Context, c *client.Client, e guest.Exec, vm, p string) bool {
	e.Args, e.Env = []string{"test", "-d", p}, []string{"PATH=/usr/bin:/bin"}
	st, err := session.Run(ctx, c.VM(vm), e, session.Discard, nil)
	return err == nil && st.ExitCode() == 0
}
