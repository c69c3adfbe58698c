package main

import (
	"os"

	"github.com/spf13/cobra"

	reporting "nearmetal/internal/report"
	"nearmetal/internal/terminal"
	"nearmetal/internal/traffic"
)

func newTrafficCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "traffic DIR [--json] [--svg FILE]",
		GroupID: groupMPI,
		Short:   "Show what ranks sent to each other",
		Long: `Shows what the ranks of MPI programs sent to each other: bytes for each pair of
ranks, messages and bytes by channel (region: through memory that the VMs of a
host share; cma: directly from the memory of a rank in the same VM; fabric: over
the network), size classes, and one line of advice.

DIR is what nearmetal run --traffic-dir wrote; or, without VMs, the directory
that NEARMETAL_TRAFFIC named (absolute) while the program ran. A rank
counts what goes over nearmetal's libfabric provider, and writes it at its end
(MPI_Finalize). What an MPI library carries by itself, as MPICH does within a
VM, is not seen.`,
		Example: `  nearmetal run --vms 2 --traffic-dir counts -- mpirun -n 4 ./app
  nearmetal traffic counts --svg traffic.svg
  NEARMETAL_TRAFFIC=$PWD/counts mpirun -n 4 ./app && nearmetal traffic counts`,
		Args: exactArgs("DIR"),
	}
	asJSON := addJSONFlag(cmd)
	picture := cmd.Flags().String("svg", "", "write the matrix as a picture to `FILE`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := traffic.ReadDir(args[0])
		if err != nil {
			return err
		}
		m := traffic.Of(list)
		m.Advise(nil)
		if *picture != "" {
			if err := drawTraffic(m, *picture); err != nil {
				return err
			}
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), m)
		}
		return m.Text(cmd.OutOrStdout())
	}
	return cmd
}

// drawTraffic writes the matrix of bytes as SVG.
func drawTraffic(m *traffic.Matrix, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := reporting.TrafficPicture(m).SVG(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
