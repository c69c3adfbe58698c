package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/launch"
)

// launchHint has, by format, the option that passes the remote shell to a launcher that reads the format.
var launchHint = map[string]string{
	"openmpi": `--mca plm_rsh_agent "nearmetal rsh" (Open MPI 5: --prtemca plm_ssh_agent "nearmetal rsh")`,
	"mpich":   "-launcher-exec nearmetal-rsh",
}

func newHostfileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hostfile [NAME] --format FORMAT",
		GroupID: groupMPI,
		Short:   "Print the VMs of a cluster as an MPI launcher's host file",
		Long: `Prints the VMs of a cluster, with a slot for each vCPU, as the file that an MPI
launcher takes its hosts from. The launcher has to know the remote shell
as well: by its own option (see nearmetal rsh), or by the variables of nearmetal
env, with which it needs no host file.`,
		Example: `  nearmetal hostfile demo --format openmpi >hosts
  nearmetal hostfile --format slurm`,
		Args:              rangeArgs(0, "NAME"),
		ValidArgsFunction: completeCluster,
	}
	format := cmd.Flags().String("format", "openmpi", "`FORMAT`: "+strings.Join(launch.Formats, ", "))
	if err := cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(launch.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("format", launch.Formats...)(cmd, []string{*format}); err != nil {
			return err
		}
		name, err := clusterTarget(cmd, firstArg(args))
		if err != nil {
			return err
		}
		r, err := state.Find(name)
		if err != nil {
			return err
		}
		text, err := launch.Hostfile(r.Hosts(), *format)
		if err != nil {
			return err
		}
		if how := launchHint[*format]; how != "" && len(r.Remote) == 0 && launch.Ours(os.Environ()) == nil {
			p := progress(cmd)
			p.Notef("a launcher would try ssh: give it %s, or run it after eval $(nearmetal env %s)", how, r.Name)
			p.Close()
		}
		_, err = cmd.OutOrStdout().Write([]byte(text))
		return err
	}
	return cmd
}
