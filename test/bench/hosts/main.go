// Command hosts measures MPI jobs over several hosts on a real Slurm on this machine, whose nodes are network
// namespaces, each figure beside its peers in the same run: `make bench-hosts`. It needs root. Each node runs VMs
// with soft RoCE between them, because this machine's kernel need not have rdma_rxe: the VMs' kernel has it. Without
// KVM the VMs are emulated, and only the ratios mean anything. Its parts count and countfour count instructions in place of time.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nearmetal/internal/stats"
	"nearmetal/test/slurm/bed"
)

var (
	rounds  = flag.Int("n", 5, "rounds of each measurement, of which the median counts")
	verbose = flag.Bool("v", false, "each run's figures as they come")
	earlier = flag.String("earlier", "", "folders below /tmp, separated by commas, with libivshmem-fi.so of other builds, which are measured in turns with this one")
	only    = flag.String("only", "", "parts, separated by commas: "+strings.Join(partNames, ", "))
)

var partNames = []string{"count", "countfour", "pair", "four", "start"}

func main() {
	flag.Parse()
	if *rounds < 5 {
		fmt.Fprintln(os.Stderr, "bench-hosts: fewer than 5 rounds give no median worth the name")
		os.Exit(2)
	}
	parts := partNames
	if *only != "" {
		parts = strings.Split(*only, ",")
		for _, p := range parts {
			if !slices.Contains(partNames, p) {
				fmt.Fprintf(os.Stderr, "bench-hosts: -only %q: there are %s\n", p, strings.Join(partNames, ", "))
				os.Exit(2)
			}
		}
	}
	if err := run(parts); err != nil {
		fmt.Fprintln(os.Stderr, "bench-hosts:", err)
		os.Exit(1)
	}
}

func run(parts []string) error {
	if p := bed.Missing(); p != "" {
		return fmt.Errorf("no %s is installed: run scripts/install.sh slurm", p)
	}
	begin := time.Now()
	fmt.Printf("load before: %s", loadavg())
	if slices.Contains(parts, "count") {
		if err := counts(); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "countfour") {
		if err := countFour(); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "pair") || slices.Contains(parts, "four") {
		if err := messages(parts); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "start") {
		if err := starts(); err != nil {
			return err
		}
	}
	fmt.Printf("%d rounds in %s; load after: %s", *rounds, time.Since(begin).Round(time.Second), loadavg())
	return nil
}

func loadavg() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown\n"
	}
	return string(b)
}

// withBed starts a Slurm of that many nodes for f.
func withBed(nodes int, f func(b *bed.Bed) error) error {
	build, err := filepath.Abs("build")
	if err != nil {
		return err
	}
	state, err := os.MkdirTemp("/tmp", "nmb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	b, err := bed.Start(bed.Options{Nodes: nodes, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Networks: true,
		Plugstack: bed.Plugstack(build, filepath.Join(state, "s"), "region_gres=region", "boot_timeout=200")})
	if err != nil {
		return err
	}
	defer b.Stop()
	return f(b)
}

// cluster is a cluster file of a node's VMs. They are not pinned: each node takes this machine's CPUs for its own.
const cluster = `vms: [{count: 2, vcpus: 1, memory: 384MiB}]
network: {type: rxe}
region: {size: 64MiB}
placement: {pin: never}
`

// kernels makes programs in dir, with Open MPI.
func kernels(dir string, programs ...string) error {
	args := []string{"-s", "-C", "kernels", "MPICC=mpicc.openmpi", "BUILD=" + dir}
	for _, p := range programs {
		args = append(args, filepath.Join(dir, p))
	}
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kernels: %w: %s", err, out)
	}
	return nil
}

// messages compares ways to send between two hosts of two VMs each.
func messages(parts []string) error {
	dir, err := os.MkdirTemp("/tmp", "nmd") // the VMs share /tmp
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := kernels(dir, "nm_latency", "nm_bw", "nm_coll", "nm_cg"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(cluster), 0o644); err != nil {
		return err
	}
	return withBed(2, func(b *bed.Bed) error {
		up := filepath.Join(dir, "up")
		hold := b.Command("sbatch", "--parsable", "-N2", "-n4", "--mem=2500", "--gres=region:64M", "--vms-per-node=2", "--vm-memory=384MiB",
			"--vm=cluster.yaml", "-o", "out", "--wrap", "srun true; touch "+up+"; sleep 7200")
		hold.Dir = dir
		id, err := hold.Output()
		if err != nil {
			return fmt.Errorf("sbatch: %w", err)
		}
		j := job{b: b, id: strings.TrimSpace(string(id)), dir: dir}
		defer func() { b.Command("scancel", j.id).Run(); b.AwaitIdle() }()
		if err := bed.Await("VMs", func() bool { _, err := os.Stat(up); return err == nil }); err != nil {
			text, _ := os.ReadFile(filepath.Join(dir, "out"))
			return fmt.Errorf("%w: %s", err, text)
		}
		if slices.Contains(parts, "pair") {
			if err := j.pair(); err != nil {
				return err
			}
		}
		if slices.Contains(parts, "four") {
			return j.four()
		}
		return nil
	})
}

// starts compares a job whose VMs boot on four hosts with one on one host.
func starts() error {
	return withBed(4, func(b *bed.Bed) error {
		line := "the start and end of a job that boots a VM on each of its hosts, medians:"
		times := map[int][]time.Duration{}
		hosts := []int{1, 2, 4}
		for round := -1; round < *rounds; round++ {
			for _, n := range hosts {
				if err := b.AwaitIdle(); err != nil {
					return err
				}
				cmd := b.Command("srun", fmt.Sprint("-N", n), fmt.Sprint("-n", n), "--mem=1000", "--vm=memory=256MiB,vcpus=1", "true")
				at := time.Now()
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
				}
				if round >= 0 {
					times[n] = append(times[n], time.Since(at))
				}
			}
		}
		one := stats.MedianDuration(times[1])
		for _, n := range hosts {
			d := stats.MedianDuration(times[n])
			line += fmt.Sprintf("  %d: %.2f s (%.2f)", n, d.Seconds(), float64(d)/float64(one))
		}
		fmt.Println(line)
		return nil
	})
}
