package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/job"
	"nearmetal/internal/launch"
)

// exitShell is the status of ssh for its own errors. rsh uses it instead of exitFailure, like nearmetal-rsh in a VM.
const exitShell = 255

func newRshCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rsh [OPTION...] VM COMMAND...",
		GroupID: groupMPI,
		Short:   "ssh replacement for MPI launchers: run a command in a VM",
		Long: `Accepts the command line of ssh, ignores its options, and runs the command in a
VM by /bin/sh, as the calling user. MPI launchers use it to start their daemons
(see nearmetal env); the cluster is $NEARMETAL_CLUSTER, or the only one. The
daemons and their ranks get the variables of nearmetal env where the launcher
does not have them: it needs only the remote shell and the hosts. The exit
status is the command's, or 255 for a failure of nearmetal, as of ssh.`,
		Example: `  nearmetal rsh vm0 hostname
  mpirun --mca plm_rsh_agent "nearmetal rsh" --host vm0,vm1 ./app # Open MPI 4
  mpirun --prtemca plm_ssh_agent "nearmetal rsh" --host vm0,vm1 ./app  # 5
  nearmetal hostfile --format mpich >hosts
  mpiexec -launcher-exec nearmetal-rsh -f hosts ./app`,
		DisableFlagParsing: true, // the options are ssh's
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			if _, _, err := launch.RshArgs(args); err != nil {
				return &usageError{err}
			}
			code, err := job.Rsh(args, streams(cmd))
			if err != nil {
				return &ExitError{Code: exitShell, Err: err}
			}
			return exitStatus(code)
		},
	}
}
