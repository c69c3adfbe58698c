package main

import (
	"io"

	"github.com/spf13/cobra"

	reporting "nearmetal/internal/report"
	"nearmetal/internal/terminal"
	"nearmetal/internal/traffic"
	"nearmetal/internal/wholefile"
)

func newTrafficCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "traffic DIR [--format FORMAT] [-o FILE]",
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
  nearmetal traffic counts -o traffic.svg
  NEARMETAL_TRAFFIC=$PWD/counts mpirun -n 4 ./app && nearmetal traffic counts`,
		Args: exactArgs("DIR"),
	}
	o := addOutputFlags(cmd, []string{"text", "json", "svg"}, "`FORMAT`: text, json, or svg for the matrix as a picture")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := o.settle(cmd)
		if err != nil {
			return err
		}
		list, err := traffic.ReadDir(args[0])
		if err != nil {
			return err
		}
		m := traffic.Of(list)
		m.Advise(nil)
		if *o.svg != "" {
			if err := wholefile.Write(*o.svg, reporting.TrafficPicture(m).SVG); err != nil {
				return err
			}
		}
		return o.write(cmd, func(w io.Writer) error {
			switch format {
			case "json":
				return terminal.PrintJSON(w, m)
			case "svg":
				return reporting.TrafficPicture(m).SVG(w)
			}
			return m.Text(w)
		})
	}
	return cmd
}
