// Command check times nearmetal check without --measure on a described host of 16 nodes, 512
// CPUs and 200 devices, beside reading the same files plainly and reading the topology
// alone, in the same run: medians. `make bench-check` runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/check"
	"nearmetal/internal/stats"
	"nearmetal/internal/topology"
	"nearmetal/test/hosttree"
)

const (
	runs = 9
	goal = 300 * time.Millisecond
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-check:", err)
		os.Exit(1)
	}
}

func run() error {
	// In memory, as sysfs is: a disk's speed is nobody's business here.
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "nearmetal-bench-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := makeTree(dir); err != nil {
		return err
	}
	var files []string
	err = filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	devices, err := os.ReadDir(filepath.Join(dir, "sys/bus/pci/devices"))
	if err != nil {
		return err
	}
	var rows int
	checks := func() error {
		r, err := check.Run(context.Background(), check.Options{Root: dir})
		rows = len(r.Rows)
		return err
	}
	plain := func() error {
		for _, f := range files {
			if _, err := os.ReadFile(f); err != nil {
				return err
			}
		}
		return nil
	}
	topo := func() error { _, err := topology.Read(dir); return err }
	var times, used [3][]time.Duration
	for n := 0; n < runs; n++ {
		for i, f := range []func() error{checks, plain, topo} {
			start, before := time.Now(), processor()
			if err := f(); err != nil {
				return err
			}
			times[i] = append(times[i], time.Since(start))
			used[i] = append(used[i], processor()-before)
		}
	}
	c, p, t := stats.MedianDuration(times[0]), stats.MedianDuration(times[1]), stats.MedianDuration(times[2])
	fmt.Printf("a host of 16 nodes, 512 CPUs, %d PCI devices: %d files, %d checks; median of %d\n", len(devices), len(files), rows, runs)
	fmt.Printf("  processor's time: check %.1f ms, reading every file %.1f ms, topology %.1f ms\n",
		ms(stats.MedianDuration(used[0])), ms(stats.MedianDuration(used[1])), ms(stats.MedianDuration(used[2])))
	fmt.Printf("  %-40s %8.1f ms   goal %v: %s\n", "nearmetal check, all rows", ms(c), goal, verdict(c <= goal))
	fmt.Printf("  %-40s %8.1f ms   check takes %.2f times as long\n", "reading every file of the tree once", ms(p), float64(c)/float64(p))
	fmt.Printf("  %-40s %8.1f ms   check takes %.2f times as long\n", "reading the topology alone", ms(t), float64(c)/float64(t))
	return nil
}

// makeTree writes the host: 8 packages of 2 nodes of 16 cores with two threads, and 200 devices.
func makeTree(dir string) error {
	var m strings.Builder
	m.WriteString("name: big\nvendor: AuthenticAMD\nmodel: described\nphysBits: 52\npackages: 8\nnodesPerPackage: 2\n" +
		"coresPerNode: 16\nthreads: 2\nl3: \"2\"\nl1KiB: 32\nl2KiB: 512\nl3KiB: 32768\nmemoryMiB: 65536\ndevices:\n")
	const cards, vfs = 10, 18 // with a root port each: 10 * (1 + 1 + 18) = 200
	for i := 0; i < cards; i++ {
		bus := 0x11 + 4*i
		fmt.Fprintf(&m, "  - {address: \"0000:%02x:00.0\", root: \"pci0000:%02x\", port: \"0000:%02x:01.1\", class: 0x020700, vendor: 0x15b3, device: 0x101b,\n", bus, bus-1, bus-1)
		fmt.Fprintf(&m, "     driver: mlx5_core, node: %d, group: %d, net: [ib%d], rdma: [mlx5_%d], barKiB: [65536], totalVFs: %d, vfDevice: 0x101c, vfDriver: vfio-pci, vfs: [",
			i, 20+i*30, i, i, vfs)
		for v := 0; v < vfs; v++ {
			if v > 0 {
				m.WriteString(", ")
			}
			fmt.Fprintf(&m, "\"0000:%02x:%02x.%d\"", bus, (v+1)/8, (v+1)%8)
		}
		m.WriteString("]}\n")
	}
	description := filepath.Join(dir, "big.machine")
	if err := os.WriteFile(description, []byte(m.String()), 0o644); err != nil {
		return err
	}
	if err := hosttree.Write(dir, description, "test/hosttree/untuned.attrs"); err != nil {
		return err
	}
	var more strings.Builder
	for i := 0; i < cards; i++ {
		d := fmt.Sprintf("sys/class/infiniband/mlx5_%d/", i)
		fmt.Fprintf(&more, "%sdevice -> ../../../bus/pci/devices/0000:%02x:00.0\n%snode_guid = b859:9f03:0012:%04x\n%sfw_ver = 20.1\n%sboard_id = MT_1\n", d, 0x11+4*i, d, i, d, d)
		fmt.Fprintf(&more, "%sports/1/state = 4: ACTIVE\n%sports/1/rate = 200 Gb/sec (4X HDR)\n%sports/1/link_layer = InfiniBand\n", d, d, d)
	}
	return hosttree.Add(dir, more.String())
}

// processor returns the time that this process has had of the processor: what a busy machine
// does not stretch.
func processor() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func verdict(ok bool) string {
	if ok {
		return "met"
	}
	return "missed"
}
