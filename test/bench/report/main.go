// Bench report measures how long a report of a hundred thousand points takes, and how
// large its page is: with one repetition a point and with five. The values are made up.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/report"
	"nearmetal/internal/wholefile"
)

const (
	points = 100000 // medians: a case, a variant and a message size each
	rounds = 5
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench report:", err)
		os.Exit(1)
	}
}

func run() error {
	fmt.Printf("%-12s %-10s %-10s %-10s %-10s %-10s %-10s %s\n", "repetitions", "samples", "read", "compute", "page", "together", "CPU", "size (bars: 5 s, 10 MB)")
	for _, repetitions := range []int{1, 5} {
		dir, err := os.MkdirTemp("", "nearmetal-bench-report-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		n, err := write(dir, repetitions)
		if err != nil {
			return err
		}
		var times [5][]time.Duration
		var size int64
		for range rounds {
			t, s, err := measure(dir)
			if err != nil {
				return err
			}
			size = s
			for i := range times {
				times[i] = append(times[i], t[i])
			}
		}
		fmt.Printf("%-12d %-10d", repetitions, n)
		for _, list := range times {
			slices.Sort(list)
			fmt.Printf(" %-10s", list[len(list)/2].Round(time.Millisecond))
		}
		fmt.Printf(" %.2f MB\n", float64(size)/1e6)
	}
	return nil
}

// measure makes the page once: the times of reading, computing and writing it, all
// together, and of the processor.
func measure(dir string) (t [5]time.Duration, size int64, err error) {
	start, used := time.Now(), cpu()
	d, err := report.Read(dir)
	if err != nil {
		return t, 0, err
	}
	t[0] = time.Since(start)
	begin := time.Now()
	r, err := report.Build([]*report.Data{d}, report.Options{Now: start})
	if err != nil {
		return t, 0, err
	}
	t[1] = time.Since(begin)
	begin = time.Now()
	name := filepath.Join(dir, "report.html")
	if err := wholefile.Write(name, func(w io.Writer) error { return r.HTML(w, "bench") }); err != nil {
		return t, 0, err
	}
	t[2] = time.Since(begin)
	t[3] = time.Since(start)
	t[4] = cpu() - used
	info, err := os.Stat(name)
	if err != nil {
		return t, 0, err
	}
	return t, info.Size(), nil
}

// cpu returns the processor time that this process has used: on a machine that others use too, it says
// more than the clock.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// write makes a run's folder and returns the number of its samples.
func write(dir string, repetitions int) (int, error) {
	const cases = 20
	at := time.Unix(0, 0).UTC()
	run := record.Run{Version: record.Version, ID: "made-up", Started: at, Ended: at, Host: record.Host{Cores: 48},
		Variants: []record.Variant{{Label: "native.48", Kind: "native", Cores: 48}, {Label: "VM.44", Kind: "vm", Cores: 44, KeptBack: 4}}}
	for c := range cases {
		run.Cases = append(run.Cases, record.Case{Name: "made-up/" + strconv.Itoa(c), Title: "Made up " + strconv.Itoa(c), Metric: "latency", Unit: "us", Better: "down", Kind: "size", X: "size"})
	}
	data, err := json.Marshal(run)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, record.RunFile), data, 0o644); err != nil {
		return 0, err
	}
	n := 0
	draw := rand.New(rand.NewSource(1))
	err = wholefile.Write(filepath.Join(dir, record.SamplesFile), func(w io.Writer) error {
		e := json.NewEncoder(w)
		for _, c := range run.Cases {
			for x := range points / cases / len(run.Variants) {
				size := 1 + x*1024
				for rep := range repetitions {
					for v, variant := range run.Variants {
						value := (1 + math.Sqrt(float64(size))) * (1 + 0.05*float64(v)) * (1 + 0.02*draw.NormFloat64())
						n++
						if err := e.Encode(record.Sample{Case: c.Name, Variant: variant.Label, Point: map[string]string{"size": strconv.Itoa(size)}, Rep: rep, Value: value, OK: true, At: at, Seconds: value / 1e6}); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
	return n, err
}
