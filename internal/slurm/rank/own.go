package rank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/slurm/conf"
	"nearmetal/internal/slurm/node"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// ownCluster returns the name of the step's own cluster on this node. The first task of the step on this node boots
// it, under a supervisor that ends with the step's slurmstepd; the others wait.
func ownCluster(ctx context.Context, sigs <-chan os.Signal, t *task, secret string, w io.Writer) (string, error) {
	name := "step-" + t.job + "-" + t.step
	if err := spec.CheckName(name); err != nil {
		return "", err
	}
	base, err := state.Base()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			select {
			case s := <-sigs:
				if s != unix.SIGCONT {
					cancel(fmt.Errorf("interrupted: %v", s))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	lock, err := os.OpenFile(filepath.Join(base, name+".lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := flock(ctx, lock); err != nil {
		return "", err
	}
	if r, err := state.Find(name); err == nil && r.State == state.Ready {
		return name, nil
	}
	failed := filepath.Join(base, name+".failed")
	if _, err := os.Lstat(failed); err == nil {
		return "", errors.New("the step's VMs did not boot (another of its tasks says why)")
	}
	r, err := node.ParseRequest(os.Getenv(varRequest))
	if err != nil {
		return "", err
	}
	r.RootWrites = os.Getenv(varRootWrites) == "yes"
	a := node.Allocation{
		Node: os.Getenv("SLURMD_NODENAME"), Cores: os.Getenv(varCores), Dir: os.Getenv(varDir),
		Name: name, Until: t.parent,
		Warn: func(line string) { fmt.Fprintln(w, "nearmetal:", text.Clean(line)) },
	}
	if err := fromPlugin(&a); err != nil {
		return "", err
	}
	if a.Overlay, err = stepOverlay(t, secret); err != nil {
		return "", err
	}
	if _, err := node.Boot(ctx, r, a); err != nil {
		os.WriteFile(failed, nil, 0o600)
		return "", err
	}
	return name, nil
}

// fromPlugin reads the plugin's variables with the step's allocation and the site's choices.
func fromPlugin(a *node.Allocation) (err error) {
	var bytes spec.Size
	if text := os.Getenv(varMemory); text != "" {
		if err := bytes.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%s: %w", varMemory, err)
		}
	}
	a.Bytes = uint64(bytes)
	if a.Region, err = node.ParseRegionLimit(os.Getenv(varRegion)); err != nil {
		return fmt.Errorf("%s: %w", varRegion, err)
	}
	a.Limit = 5 * time.Minute
	if text := os.Getenv(varBootTimeout); text != "" {
		if a.Limit, err = time.ParseDuration(text); err != nil || a.Limit <= 0 {
			return fmt.Errorf("%s=%q is not a duration", varBootTimeout, text)
		}
	}
	a.Devices = strings.Fields(os.Getenv(varDevices))
	a.Isolation = os.Getenv(varIsolation)
	if a.Accel = os.Getenv(varAccel); a.Accel == "" {
		a.Accel = "auto"
	}
	return nil
}

// stepOverlay returns the overlay of the step's nodes, with a secret that is specific to the step.
func stepOverlay(t *task, secret string) (node.Overlay, error) {
	all := node.Overlay{Secret: secret, Hosts: os.Getenv(varHosts), Ports: os.Getenv(varPorts), Use: "step " + t.step}
	if all.Hosts == "" {
		return node.Overlay{}, nil
	}
	names, err := conf.Expand(os.Getenv("SLURM_STEP_NODELIST"))
	if err != nil {
		return node.Overlay{}, fmt.Errorf("SLURM_STEP_NODELIST: %w", err)
	}
	var kept []string
	for _, h := range strings.Fields(all.Hosts) {
		if name, _, _ := strings.Cut(h, "="); slices.Contains(names, name) {
			kept = append(kept, h)
		}
	}
	all.Hosts = strings.Join(kept, " ")
	return all, nil
}

// flock acquires the lock, or returns an error when ctx ends.
func flock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
