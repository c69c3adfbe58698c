// Command harness shows what `nearmetal bench run` adds to what it measures: sleep and an MPI
// program that does nothing, timed with and without it, in turns: `make bench-harness`, from
// the repository's root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/run"
	"nearmetal/internal/bench/stats"
	"nearmetal/internal/bench/suite"
)

// Bounds that the harness is held to.
const (
	mostShare   = 0.01 // of what is measured
	mostSeconds = 0.05 // a repetition, of everything besides
)

var (
	rounds      = flag.Int("rounds", 25, "rounds, each with and without")
	repetitions = flag.Int("repetitions", 1, "repetitions in a round")
	kernels     = flag.String("kernels", "build/c/kernels", "folder of nearmetal's MPI programs")
)

// definitions are the two experiments; the MPI program solves a system of four equations.
const definitions = `version: 1
suite: harness
experiments:
  - name: sleep
    programs: [{name: sleep, find: [sleep]}]
    command: ["{program}", "1"]
    output: [{metric: time, unit: s, better: down, wall: true}]
  - name: mpi
    launch: mpi
    ranks: "2"
    programs: [{name: nm_cg, kernel: nm_cg}]
    command: ["{program}", --grid, "2"]
    output: [{metric: time, unit: s, better: down, wall: true}]
`

func main() {
	flag.Parse()
	if err := all(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-harness:", err)
		os.Exit(1)
	}
}

func all() error {
	s, err := suite.Parse("harness", []byte(definitions))
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(*kernels)
	if err != nil {
		return err
	}
	flavour, err := mpi.Find(context.Background(), "openmpi", "")
	if err != nil {
		return err
	}
	fmt.Printf("%-8s %14s %14s %10s %18s\n", "program", "alone, s", "as recorded, s", "share", "besides, ms a rep")
	late := false
	for i := range s.Experiments {
		one := *s
		one.Experiments = s.Experiments[i : i+1]
		alone, recorded, besides, err := measure(&one, flavour, dir)
		if err != nil {
			return err
		}
		share := recorded/alone - 1
		fmt.Printf("%-8s %14.4f %14.4f %+9.2f%% %18.1f\n", one.Experiments[0].Name, alone, recorded, 100*share, 1000*besides)
		late = late || share > mostShare || besides > mostSeconds
	}
	verdict := "within"
	if late {
		verdict = "beyond"
	}
	fmt.Printf("%s the bounds of %.0f %% and %.0f ms\n", verdict, 100*mostShare, 1000*mostSeconds)
	return nil
}

// measure gives medians in s: of the program alone, of its time as the harness records it,
// and of the time that a repetition takes besides.
func measure(s *suite.Suite, f mpi.Flavour, dir string) (alone, recorded, besides float64, err error) {
	var a, r, b []float64
	for i := 0; i < *rounds; i++ {
		tmp, err := os.MkdirTemp("", "bench-harness")
		if err != nil {
			return 0, 0, 0, err
		}
		defer os.RemoveAll(tmp)
		o := run.Order{
			Suites: []*suite.Suite{s}, Repetitions: *repetitions, KernelDirs: []string{dir},
			Variants: []run.Variant{{Variant: record.Variant{Label: "native", Kind: "native", Cores: 2}, MPI: f, FirstMPI: true}},
		}
		rec := &record.Run{Version: record.Version, ID: "harness"}
		begin := time.Now()
		out, err := run.Start(context.Background(), filepath.Join(tmp, "run"), o, rec, run.Events{})
		wall := time.Since(begin).Seconds()
		if err == nil && len(out.Failed) > 0 {
			err = out.Failed[0].Err
		}
		if err != nil {
			return 0, 0, 0, err
		}
		_, samples, _, err := record.Load(filepath.Join(tmp, "run"))
		if err != nil {
			return 0, 0, 0, err
		}
		for _, x := range samples {
			r = append(r, x.Value)
			wall -= x.Value
		}
		b = append(b, wall/float64(len(samples)))
		for k := 0; k < *repetitions; k++ {
			t, err := direct(rec.Cases[0].Command)
			if err != nil {
				return 0, 0, 0, err
			}
			a = append(a, t)
		}
	}
	return stats.Median(a), stats.Median(r), stats.Median(b), nil
}

// direct runs a command as anybody would and gives its wall clock in s.
func direct(words []string) (float64, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	begin := time.Now()
	err := cmd.Run()
	return time.Since(begin).Seconds(), err
}
