package main

import (
	"errors"

	"github.com/spf13/cobra"

	"nearmetal/internal/job"
	"nearmetal/internal/traffic"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARG...]",
		GroupID: groupRun,
		Short:   "Boot VMs, run a command in them, and tear them down",
		Long: `Boots a cluster of VMs, runs COMMAND, and removes the cluster. The exit status
is the command's: 127 if it does not exist, 126 if it cannot be run, 125 if
nearmetal itself failed. Where COMMAND runs:

  an MPI launcher (mpirun, mpiexec, mpiexec.hydra, orterun, prterun), or a
  script that calls one: once, on this host; its ranks land in the VMs
  any other COMMAND: once in every VM

--host and --each override this. Ranks are spread over the VMs as the launcher
is asked to spread them. In every VM: standard input goes to the first VM, and
the highest exit status counts. With several VMs output lines are prefixed with
the VM's name. A line stays whole, however long: the other VMs' output waits for
its end, for ten seconds at most.

With --hosts the VMs run on other hosts, which are reached by your ssh; an MPI
launcher then runs in the first VM, and with --host here (docs/hosts.md).

The VMs see this host's files, read-only below an overlay in memory; what is
written in the working directory is kept (see --share). Files written elsewhere
are lost with the VMs, and listed at the end (except those below /tmp and
similar directories).`,
		Example: `  nearmetal run --vms 2 -- mpirun -n 4 ./solver
  nearmetal run --vms 4 --vcpus 2 --memory 1GiB -- mpiexec.hydra -n 8 ./app
  nearmetal run --vms 2 -- ./job.sh
  nearmetal run --vms 2 -- hostname
  nearmetal run --vms 2 --each -- ./setup.sh
  nearmetal run --vms 2 --traffic -- mpirun -n 4 ./solver
  nearmetal run --hosts node1,node2 --vms 4 -- mpirun -n 8 ./solver
  nearmetal run -f cluster.yaml --env OMP_NUM_THREADS=4 -- mpirun ./hybrid`,
		Args: atLeastOne("COMMAND"),
	}
	cmd.Flags().SetInterspersed(false)
	boot := addBootFlags(cmd)
	noPrefix := cmd.Flags().Bool("no-prefix", false, "do not prefix output lines with the VM's name")
	noInput := cmd.Flags().Bool("no-stdin", false, "no standard input for COMMAND")
	onHost := cmd.Flags().Bool("host", false, "run COMMAND once, on this host; the ranks of MPI launchers that it calls land in the VMs")
	var each bool
	cmd.Flags().BoolVar(&each, "each", false, "run COMMAND once in every VM (default: MPI launchers once on this host, others once in every VM)")
	cmd.Flags().BoolVar(&each, "all", false, "the same as --each")
	counts := cmd.Flags().Bool("traffic", false, "show at the end what the ranks sent to each other")
	countsDir := cmd.Flags().String("traffic-dir", "", "keep that in `DIR`, which is created, for nearmetal traffic")
	exclude(cmd, "host", "each")
	exclude(cmd, "host", "all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		o, ev, booted, err := boot(p)
		if err != nil {
			return err
		}
		where := job.Fitting
		switch {
		case *onHost:
			where = job.OnHost
		case each:
			where = job.Each
		}
		var counted *job.Traffic
		if *counts || *countsDir != "" || o.Verbose {
			counted = &job.Traffic{Dir: *countsDir, Done: func(m *traffic.Matrix) {
				if *counts {
					m.Text(cmd.ErrOrStderr())
				} else if o.Verbose {
					m.VMs(cmd.ErrOrStderr())
				}
			}, Carried: func(list []traffic.Carried) { traffic.WriteCarried(cmd.ErrOrStderr(), list) }}
		}
		code, err := job.Run(job.RunOptions{
			Cluster: o, Events: ev, Args: args, Where: where, NoPrefix: *noPrefix, NoInput: *noInput,
			Booted: booted, Traffic: counted,
			Notice: func(line string) { p.Printf("%s", line) },
		}, streams(cmd))
		p.Close()
		var interrupted *job.Interrupted
		switch {
		case errors.As(err, &interrupted):
			return exitSignal(interrupted.Signal)
		case err != nil:
			return err
		}
		return exitStatus(code)
	}
	return cmd
}
