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
	"nearmetal/internal/text"
)

// exitHostFault is the status of slurm-boot if the host is at fault: slurm/boot.c drains it then. It equals
// exitFindings, and must keep its value because nearmetal and the plugin may have different versions while packages are
// upgraded.
const exitHostFault = 3

// warningMark starts a line of slurm-boot that slurm/step.c shows to the user.
const warningMark = "! "

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
	region := f.String("region-limit", "", "what the job has of the GRES that counts regions, `NAME:BYTES`")
	f.StringVar(&a.Dir, "workdir", "", "the job's working `DIR`ectory (default this one)")
	f.StringVar(&a.Accel, "accel", "auto", "the site's choice of auto, kvm or tcg")
	f.StringVar(&a.Isolation, "isolation", "auto", "the least that the site asks for: auto, standard or strict")
	rootWrites := f.Bool("root-writes", false, "VMs of root may write to shares")
	f.StringVar(&a.Overlay.Ports, "ports", "", "`LOW-HIGH`: ports for other nodes of the job")
	f.StringSliceVar(&a.Devices, "device", nil, "the PCI `ADDRESS` of a VF of the job's")
	timeout := addBootTimeoutFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := node.ParseRequest(args[0])
		if err != nil {
			return err
		}
		// srun and sbatch check in the directory that becomes the job's.
		if a.Dir == "" {
			if a.Dir, err = os.Getwd(); err != nil {
				return fmt.Errorf("cannot find the working directory: %w", err)
			}
		}
		r.RootWrites = *rootWrites
		if *check {
			_, err := r.Cluster(a.Dir)
			return err
		}
		if a.Region, err = node.ParseRegionLimit(*region); err != nil {
			return usagef("--region-limit: %v", err)
		}
		if a.Overlay.Hosts, a.Overlay.Use = os.Getenv(node.VarHosts), "job"; a.Overlay.Hosts != "" {
			if a.Overlay.Secret, err = node.ReadSecret(os.Stdin); err != nil {
				return err
			}
		}
		a.Bytes, a.Limit = uint64(limit), time.Duration(*timeout)
		ctx, stop := interruptible()
		defer stop()
		var warnings []string
		a.Warn = func(line string) { warnings = append(warnings, line) }
		rec, err := node.Boot(ctx, r, a)
		var fault *node.HostFault
		if errors.As(err, &fault) {
			return &ExitError{Code: exitHostFault, Err: err}
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), rec.Name)
		// A batch script's mpirun finds the VMs by these variables; without an uplink it cannot.
		if vars, err := job.LaunchVariables(rec, nil); err == nil {
			for _, v := range vars {
				fmt.Fprintln(cmd.OutOrStdout(), v)
			}
		}
		// Printed last, because the plugin truncates long output.
		for _, w := range warnings {
			fmt.Fprintln(cmd.OutOrStdout(), warningMark+text.Clean(w))
		}
		return nil
	}
	return cmd
}
