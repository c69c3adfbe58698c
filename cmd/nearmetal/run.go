package main

import (
	"errors"

	"github.com/spf13/cobra"

	"nearmetal/internal/job"
)

func newRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARG...]",
		GroupID: groupRun,
		Short:   "Boot VMs, run a command in them, and tear them down",
		Long: `Boots a cluster of VMs, runs COMMAND, and removes the cluster; the exit status
is the command's. If COMMAND is an MPI launcher (mpirun, mpiexec,
mpiexec.hydra, orterun, prterun), its ranks land in the VMs, spread as it is
asked to spread them. Any other COMMAND runs once in every VM, each line of
output behind the name of its VM; its standard input goes to the first VM, and
the highest status counts.

The VMs see this host's files, read-only below an overlay in memory; what is
written in the working directory is kept (see --share).`,
		Example: `  nearmetal run --vms 2 -- mpirun -n 4 ./solver
  nearmetal run --vms 4 --vcpus 2 --memory 1GiB -- mpiexec.hydra -n 8 ./app
  nearmetal run --vms 2 -- hostname
  nearmetal run -f cluster.yaml --env OMP_NUM_THREADS=4 -- mpirun ./hybrid`,
		Args: atLeastOne("COMMAND"),
	}
	cmd.Flags().SetInterspersed(false)
	boot := addBootFlags(cmd)
	noPrefix := cmd.Flags().Bool("no-prefix", false, "lines of output without the VM's name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		o, booted, err := boot(p)
		if err != nil {
			return err
		}
		code, err := job.Run(job.RunOptions{
			Cluster: o, Args: args, NoPrefix: *noPrefix,
			Booted: booted,
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
