package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/guest"
	"nearmetal/internal/job"
	"nearmetal/internal/session"
	"nearmetal/internal/slurm/node"
	"nearmetal/internal/terminal"
	"nearmetal/internal/traffic"
)

// Variables that the SPANK plugin sets for the wrapper (slurm/step.c).
const (
	varCommand   = "NEARMETAL_SLURM_COMMAND" // the command that the wrapper has replaced (Slurm before 23.11)
	varJob       = "NEARMETAL_SLURM_JOB"     // JOB.NODE, for a step with VMs of its own
	varRequest   = "NEARMETAL_SLURM_REQUEST" // the same step's request
	varDir       = "NEARMETAL_SLURM_DIR"     // working directory of the job
	varCores     = "NEARMETAL_SLURM_CORES"
	varMemory    = "NEARMETAL_SLURM_MEMORY"
	varHosts     = node.VarHosts
	varPorts     = "NEARMETAL_SLURM_PORTS"
	varRegion    = "NEARMETAL_SLURM_REGION"    // the job's limit of the GRES that counts regions; missing: not counted
	varAccel     = "NEARMETAL_SLURM_ACCEL"     // the site's choice of auto, kvm or tcg; missing: auto
	varIsolation = "NEARMETAL_SLURM_ISOLATION" // the minimum isolation of VMs on this site; missing: auto
	varDevices   = "NEARMETAL_SLURM_DEVICES"   // PCI addresses of the job's VFs on this node

	varRootWrites  = "NEARMETAL_SLURM_ROOT_WRITES"  // yes: the site lets VMs of root write to shares
	varBootTimeout = "NEARMETAL_SLURM_BOOT_TIMEOUT" // the site's timeout for VMs to become ready, "300s"; missing: 5 min
)

// Run runs the task with the words args: the wrapper's own path and its arguments. It returns the command's exit
// status.
func Run(args []string, s session.Streams) (guest.Status, error) {
	secret, err := node.InheritedSecret()
	if err != nil {
		return guest.Status{}, err
	}
	words, err := command(args, os.Getenv(varCommand))
	if err != nil {
		return guest.Status{}, err
	}
	sigs, stop := session.Signals()
	defer stop()
	ctx := context.Background()
	t, err := readTask(os.Getenv)
	if err != nil {
		return guest.Status{}, err
	}
	name := os.Getenv("NEARMETAL_CLUSTER")
	if os.Getenv(varRequest) != "" {
		if name, err = ownCluster(ctx, sigs, t, secret, s.Err); err != nil {
			return guest.Status{}, err
		}
	}
	c, err := client.Connect(ctx, name)
	if err != nil {
		return guest.Status{}, err
	}
	defer c.Close()
	vm := c.Record.VMs[t.vm(len(c.Record.VMs))].Name
	env, err := job.VMEnvironment(&c.Record, nil)
	if err != nil {
		return guest.Status{}, err
	}
	if err := t.joined(ctx, &c.Record, s.Err); err != nil {
		return guest.Status{}, err
	}
	env, connect, closePMI, err := relayPMI(ctx, c.VM(vm), t, len(c.Record.VMs), env)
	if err != nil {
		return guest.Status{}, fmt.Errorf("%s: %w", vm, err)
	}
	defer closePMI()
	e := session.Caller(words, without(env, "NEARMETAL_"))
	cpus, _ := strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE"))
	e.CPUs = vcpus(&c.Record, vm, t, cpus)
	e.Connect = connect
	defer suspend(c, vm)()
	var st guest.Status
	if tty, ok := s.In.(*os.File); ok && terminal.IsTerminal(tty) {
		st, err = session.Terminal(ctx, c.VM(vm), e, tty, sigs)
	} else {
		st, err = session.Run(ctx, c.VM(vm), e, s, sigs)
	}
	if st.ExitCode() == killed { // only the killed rank reports it, not the other ranks in the VM
		job.WarnMemory(&c.Record, vm, st, "--vm-memory", s.Err)
	}
	return st, err
}

// killed is the exit status of a rank that the kernel killed, or of a shell whose command it killed: 128 and SIGKILL.
const killed = 128 + int(unix.SIGKILL)

// command returns the task's words. Before Slurm 23.11 the plugin replaces the command by the wrapper's path and
// stores the command in a variable; later versions prepend the wrapper's path.
func command(args []string, first string) ([]string, error) {
	if first != "" {
		return append([]string{first}, args[1:]...), nil
	}
	if len(args) < 2 {
		return nil, errors.New("nearmetal-task is for the SPANK plugin of nearmetal, which starts it: use srun --vm")
	}
	return args[1:], nil
}

// without removes the variables that start with prefix, except the directory of srun --vm-traffic, which is for the
// ranks.
func without(env []string, prefix string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, prefix) || strings.HasPrefix(v, traffic.Variable+"=") {
			kept = append(kept, v)
		}
	}
	return kept
}

// suspend forwards `scontrol suspend`: on SIGTSTP it asks for the VM to be stopped, which happens when all of the
// VM's ranks have asked, and on SIGCONT to be resumed. It returns a function that ends the forwarding.
func suspend(c *client.Client, vm string) func() {
	p, err := c.Pauser(vm)
	if err != nil {
		return func() {} // the owner does not support it: the VM keeps running
	}
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, unix.SIGTSTP, unix.SIGCONT)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-sigs:
				p.Pause(s == unix.SIGTSTP)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(sigs)
		close(done)
		p.Close()
	}
}

// Die ends this process with the signal that ended the command, without a core file, so that Slurm sees the same
// status as natively. It returns if that fails.
func Die(sig syscall.Signal) {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// Go's runtime handles fault signals itself; therefore another program replaces this one.
	unix.Exec("/bin/sh", []string{"sh", "-c", `kill -s "$1" $$`, "sh", fmt.Sprint(int(sig))}, nil)
}
