package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
	"nearmetal/internal/spec"
)

// noProgram is the status for a command that does not exist, as in shells.
const noProgram = 127

func newExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec [flags] [NAME[/VM] [--]] COMMAND [ARG...]",
		GroupID: groupCluster,
		Short:   "Run a command in a VM of a running cluster",
		Long: `Runs a command in a VM, or with --all once in every VM, as the caller: the same
user, working directory, environment and limits. Standard input, output and
error are the caller's, signals are passed on, and the exit status is the
command's: 128 and the signal's number if a signal ended it, 127 if it does not
exist, 126 if it cannot be run, 125 if nearmetal itself failed. With --all,
output lines are prefixed with the VM's name, and the highest status counts.
Files written outside shares are lost with the cluster, and listed at the end
(except those below /tmp and similar directories).

The first word is a cluster, or a VM of it, if one of that name runs; otherwise
it is the command. A "--" after the word makes it a cluster, a "--" before it
(or -c NAME) makes it the command.`,
		Example: `  nearmetal exec hostname
  nearmetal exec demo hostname
  nearmetal exec demo/vm1 -- ls -l
  nearmetal exec --all demo -- numactl -H
  nearmetal exec -t demo/vm1 -- top
  tar c data | nearmetal exec tar x -C /tmp`,
		Args: atLeastOne("COMMAND"),
	}
	cmd.Flags().SetInterspersed(false)
	o := job.ExecOptions{}
	name := addClusterNameFlag(cmd)
	cmd.Flags().StringVar(&o.VM, "vm", "", "`VM` to run in (the older form of NAME/VM; default the first)")
	cmd.Flags().BoolVar(&o.All, "all", false, "run once in every VM (default: in one VM, the cluster's first)")
	cmd.Flags().BoolVar(&o.All, "each", false, "the same as --all")
	cmd.Flags().BoolVarP(&o.TTY, "tty", "t", false, "run the command in a terminal")
	cmd.Flags().BoolVarP(&o.NoInput, "no-stdin", "n", false, "no standard input")
	cmd.Flags().BoolVar(&o.NoPrefix, "no-prefix", false, "with --all, do not prefix output lines with the VM's name")
	cmd.Flags().BoolVar(&o.Root, "as-root", false, "run as root of the VM")
	var env envList
	cmd.Flags().Var(&env, "env", "set a variable for the command, without VALUE to the caller's; repeatable")
	cmd.ValidArgsFunction = completeTarget
	if err := cmd.RegisterFlagCompletionFunc("vm", completeVMs); err != nil {
		panic(err)
	}
	for _, every := range []string{"all", "each"} {
		exclude(cmd, "tty", every)
		exclude(cmd, "vm", every)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, args, err := job.SplitExec(args, cmd.ArgsLenAtDash(), *name != "")
		switch {
		case errors.As(err, new(*job.UsageError)):
			return &usageError{err}
		case err != nil:
			return err
		case t.Cluster != "" && *name != "" && t.Cluster != *name:
			return usagef("%s and -c %s name two clusters: leave one out", t.Cluster, *name)
		case t.VM != "" && (o.All || o.VM != "" && o.VM != t.VM):
			return usagef("the VM is %s: leave out --vm and --all", t.VM)
		case t.Cluster != "":
			*name = t.Cluster
		}
		if t.VM != "" {
			o.VM = t.VM
		}
		o.Cluster, o.Args, o.Env = *name, args, env
		code, err := job.Exec(o, streams(cmd))
		if err != nil {
			return err
		}
		if code == noProgram && *name == "" && cmd.ArgsLenAtDash() != 0 && len(args) > 1 && !job.IsProgram(args[0]) && spec.CheckName(args[0]) == nil {
			if _, err := state.Find(args[0]); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %v\n", err)
			}
		}
		return exitStatus(code)
	}
	return cmd
}
