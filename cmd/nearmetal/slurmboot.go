package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/job"
	"nearmetal/internal/slurm/node"
	"nearmetal/internal/spec"
)

// exitHostFault is the status of slurm-boot where the host is at fault: slurm/boot.c drains it then.
const exitHostFault = 3

func newSlurmBootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm-boot [flags] -- REQUEST",
		GroupID: groupCluster,
		Hidden:  true,
		Short:   "Boot the VMs of a Slurm job on this node (started by the SPANK plugin)",
		Example: "  srun --vm hostname",
		Args:    rangeArgs(1, "REQUEST"),
	}
	f := cmd.Flags()
	check := f.Bool("check", false, "only check the request")
	var a node.Allocation
	f.StringVar(&a.Node, "node", "", "Slurm's `NAME` of this node")
	f.StringVar(&a.Cores, "cores", "", "Slurm's `LIST` of the job's cores on this node")
	var limit spec.Size
	f.Var(&limit, "memory-limit", "the job's memory on this node; 0: not limited")
	f.StringVar(&a.Dir, "workdir", "/", "the job's working `DIR`ectory")
	f.StringVar(&a.Accel, "accel", "auto", "the site's choice of auto, kvm or tcg")
	f.StringVar(&a.Trunk.Ports, "ports", "", "`LOW-HIGH`: ports for other nodes of the job")
	f.StringSliceVar(&a.Devices, "device", nil, "the PCI `ADDRESS` of a VF of the job's")
	timeout := addBootTimeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := node.ParseRequest(args[0])
		if err != nil {
			return err
		}
		if *check {
			_, err := r.Cluster(a.Dir)
			return err
		}
		a.Trunk.Secret, a.Trunk.Hosts, a.Trunk.Use = os.Getenv(node.VarSecret), os.Getenv(node.VarHosts), "job"
		a.Bytes, a.Limit = uint64(limit), time.Duration(*timeout)
		ctx, stop := interruptible()
		defer stop()
		rec, err := node.Boot(ctx, r, a)
		var fault *node.HostFault
		if errors.As(err, &fault) {
			return &ExitError{Code: exitHostFault, Err: err}
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), rec.Name)
		// A batch script's mpirun finds the VMs by these; without an uplink it cannot.
		if vars, err := job.LaunchVariables(rec, nil); err == nil {
			for _, v := range vars {
				fmt.Fprintln(cmd.OutOrStdout(), v)
			}
		}
		return nil
	}
	return cmd
}
