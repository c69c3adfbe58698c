// Command plan measures the planner and prints the figures that the project
// promises beside what was measured: `make bench-plan`, from the repository's root.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

var (
	machines = flag.String("machines", "test/topology", "folder with the described machines")
	cases    = flag.Int("cases", 20000, "random requests that are compared with exhaustive search; 0: none")
	runs     = flag.Int("runs", 5, "runs of each measurement, of which the median is shown")
)

func main() {
	flag.Parse()
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-plan:", err)
		os.Exit(1)
	}
}

func measure() error {
	uv, err := topology.Open(filepath.Join(*machines, "uv16.machine"))
	if err != nil {
		return err
	}
	server, err := topology.Open(filepath.Join(*machines, "r740.machine"))
	if err != nil {
		return err
	}
	eight, err := topology.Open(filepath.Join(*machines, "epyc-nps4.machine"))
	if err != nil {
		return err
	}
	fmt.Printf("median of %d runs; CPU is the time of this process on all cores, which a busy machine does not change\n\n", *runs)
	fmt.Printf("%-58s %12s %12s  %s\n", "", "time", "CPU", "promised")

	for _, c := range []struct {
		what string
		host topology.Host
	}{
		{"8 nodes of 16, four chassis (Nova: 500 million tries)", *uv},
		{"8 nodes of 16, distances at random", irregular(*uv)},
	} {
		t, err := median(200, cluster(1, 192, 1<<40), []topology.Host{c.host}, plan.Ledger{})
		if err != nil {
			return err
		}
		fmt.Printf("%-58s %12s %12s  under 1 ms%s\n", c.what, t.wall, t.cpu, t.in(time.Millisecond))
	}

	var per []float64
	sizes := []int{100, 1000, 10000}
	for _, differ := range []bool{false, true} {
		for _, n := range sizes {
			hosts, l := fleet(*server, n, differ)
			t, err := median(1, cluster(4*n, 10, 32<<30), hosts, l)
			if err != nil {
				return err
			}
			promise := ""
			if n == 10000 {
				promise = "under 2 s" + t.in(2*time.Second)
			}
			kind := map[bool]string{false: "alike", true: "all different"}[differ]
			fmt.Printf("%-58s %12s %12s  %s\n", fmt.Sprintf("%d hosts, %s, 4 VMs each", n, kind), t.wall, t.cpu, promise)
			if differ {
				per = append(per, t.cpu.Seconds()/float64(n))
			}
		}
	}
	hosts, l := fleet(*eight, 1000, true)
	t, err := median(1, cluster(2000, 48, 90<<30), hosts, l)
	if err != nil {
		return err
	}
	fmt.Printf("%-58s %12s %12s\n", "1000 hosts of 8 nodes, all different, 2 VMs of 3 nodes each", t.wall, t.cpu)

	peak := maxRSS()
	fmt.Printf("\nmost memory of this process: %d MiB; promised: under 1024 MiB%s\n", peak>>20, met(peak < 1<<30))
	// With n log n, the time per host grows by log 10000 / log 100 = 2 from 100 to 10000 hosts.
	growth, most := per[2]/per[0], math.Log(float64(sizes[2]))/math.Log(float64(sizes[0]))
	fmt.Printf("CPU time per host at 10000 hosts, to that at 100: %.2f; n log n would be %.2f%s\n", growth, most, met(growth <= most))
	if *cases > 0 {
		return exhaustive()
	}
	return nil
}

func met(ok bool) string {
	if ok {
		return ": met"
	}
	return ": MISSED"
}

// in says whether a time is under what was promised, where the machine is busy by CPU time.
func (t timing) in(most time.Duration) string {
	if t.wall >= most && t.cpu < most {
		return ": met in CPU time, the machine is busy"
	}
	return met(t.wall < most)
}

// timing is one measurement.
type timing struct{ wall, cpu time.Duration }

// median plans k times in each run.
func median(k int, c *spec.Cluster, hosts []topology.Host, l plan.Ledger) (timing, error) {
	var walls, cpus []time.Duration
	for i := 0; i < *runs; i++ {
		runtime.GC()
		cpu, began := cpuTime(), time.Now()
		for j := 0; j < k; j++ {
			if _, err := plan.Make(c, hosts, l); err != nil {
				return timing{}, err
			}
		}
		walls = append(walls, time.Since(began)/time.Duration(k))
		cpus = append(cpus, (cpuTime()-cpu)/time.Duration(k))
	}
	for _, v := range [][]time.Duration{walls, cpus} {
		sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	}
	return timing{walls[len(walls)/2].Round(time.Microsecond), cpus[len(cpus)/2].Round(time.Microsecond)}, nil
}

func cluster(count, vcpus int, memory spec.Size) *spec.Cluster {
	c := &spec.Cluster{Accel: "kvm", VMs: []spec.Group{{Name: "vm", Count: count, VCPUs: vcpus, Memory: memory}}}
	spec.Defaults(c)
	return c
}

// fleet makes n hosts like a machine. With differ each has other free memory,
// and some have VMs already, so that no two are alike for the planner.
func fleet(like topology.Host, n int, differ bool) ([]topology.Host, plan.Ledger) {
	r := rand.New(rand.NewSource(1))
	hosts := make([]topology.Host, n)
	var l plan.Ledger
	for i := range hosts {
		hosts[i] = like
		hosts[i].Name = fmt.Sprintf("n%05d", i)
		if !differ {
			continue
		}
		hosts[i].Nodes = append([]topology.Node(nil), like.Nodes...)
		for j := range hosts[i].Nodes {
			hosts[i].Nodes[j].AvailableBytes -= uint64(r.Intn(1<<20)) << 10
		}
		if r.Intn(4) == 0 {
			l.Held = append(l.Held, plan.Held{Host: hosts[i].Name, VM: "old", CPUs: []int{r.Intn(len(like.CPUs))}})
		}
	}
	return hosts, l
}

// irregular returns a host distances that no structure helps with.
func irregular(h topology.Host) topology.Host {
	r := rand.New(rand.NewSource(2))
	h.Nodes = append([]topology.Node(nil), h.Nodes...)
	for i := range h.Nodes {
		h.Nodes[i].Distances = append([]int(nil), h.Nodes[i].Distances...)
	}
	for i := range h.Nodes {
		for j := 0; j < i; j++ {
			d := 12 + r.Intn(30)
			h.Nodes[i].Distances[j], h.Nodes[j].Distances[i] = d, d
		}
	}
	return h
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxRSS is the most memory that this process had, in bytes.
func maxRSS() uint64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10
}

// exhaustive runs the comparison with exhaustive search, which is a test.
func exhaustive() error {
	cmd := exec.Command("go", "test", "./internal/plan", "-count=1", "-run", "TestNeverWorseThanExhaustive", "-v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("NEARMETAL_PLAN_CASES=%d", *cases))
	out, err := cmd.CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		if _, said, ok := strings.Cut(line, "brute_test.go:"); ok {
			_, said, _ = strings.Cut(said, ": ")
			fmt.Println(said)
		}
	}
	if err != nil {
		return fmt.Errorf("the comparison with exhaustive search failed: %w", err)
	}
	return nil
}
