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

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/run"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/stats"
)

// Bounds that the harness is held to.
const (
	mostShare   = 0.01 // of what is measured
	mostSeconds = 0.05 // a repetition, of everything besides
)

var (
	rounds      = flag.Int("rounds", 15, "rounds, each with and without")
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
	flavour, err := mpi.Find(context.Background(), "openmpi", "", suite.ProgramsDir())
	if err != nil {
		return err
	}
	fmt.Printf("%-8s %10s %12s %9s %18s %15s\n", "program", "alone, s", "recorded, ms", "share", "besides, ms a rep", "of those CPU, ms")
	late := false
	for i := range s.Experiments {
		one := *s
		one.Experiments = s.Experiments[i : i+1]
		r, err := measure(&one, flavour, dir)
		if err != nil {
			return err
		}
		share := r.more / r.alone
		fmt.Printf("%-8s %10.4f %+12.2f %+8.2f%% %18.1f %15.1f\n", one.Experiments[0].Name, r.alone, 1000*r.more, 100*share, 1000*r.besides, 1000*r.cpu)
		late = late || share > mostShare || r.besides > mostSeconds
	}
	verdict := "within"
	if late {
		verdict = "beyond"
	}
	fmt.Printf("%s the bounds of %.0f %% and %.0f ms\n", verdict, 100*mostShare, 1000*mostSeconds)
	return nil
}

// result is what a program takes alone and by the harness: medians over the rounds.
type result struct {
	alone   float64 // s
	more    float64 // s, of the time that the harness records over the program's alone, paired by rounds
	besides float64 // s a repetition that is not the program's
	cpu     float64 // s of the harness's own processor time a repetition
}

// measure times a program in rounds: alone and by the harness, whichever is first in turns, so
// that what disturbs the machine meets both.
func measure(s *suite.Suite, f mpi.Flavour, dir string) (result, error) {
	var alone, more, besides, cpu []float64
	for i := 0; i < *rounds; i++ {
		h, err := byHarness(s, f, dir)
		if err != nil {
			return result{}, err
		}
		t, err := direct(h.command)
		if err != nil {
			return result{}, err
		}
		if i%2 == 1 { // this round's harness comes second
			if h, err = byHarness(s, f, dir); err != nil {
				return result{}, err
			}
		}
		alone, more = append(alone, t), append(more, h.recorded-t)
		besides, cpu = append(besides, h.besides), append(cpu, h.cpu)
	}
	return result{stats.Median(alone), stats.Median(more), stats.Median(besides), stats.Median(cpu)}, nil
}

// harnessed is one run by the harness; times are in s, a repetition.
type harnessed struct {
	recorded, besides, cpu float64
	command                []string
}

func byHarness(s *suite.Suite, f mpi.Flavour, dir string) (h harnessed, err error) {
	tmp, err := os.MkdirTemp("", "bench-harness")
	if err != nil {
		return h, err
	}
	defer os.RemoveAll(tmp)
	o := run.Request{
		Suites: []*suite.Suite{s}, Repetitions: *repetitions, KernelDirs: []string{dir},
		Variants: []run.Variant{{Variant: record.Variant{Label: "native", Kind: "native", Cores: 2}, MPI: f, FirstMPI: true}},
	}
	rec := &record.Run{Version: record.Version, ID: "harness"}
	begin, used := time.Now(), ownTime()
	out, err := run.Start(context.Background(), filepath.Join(tmp, "run"), o, rec, run.Events{})
	wall := time.Since(begin).Seconds()
	used = ownTime() - used
	if err == nil && len(out.Failed) > 0 {
		err = out.Failed[0].Err
	}
	if err != nil {
		return h, err
	}
	_, samples, _, err := record.Load(filepath.Join(tmp, "run"))
	if err != nil {
		return h, err
	}
	n := float64(len(samples))
	for _, x := range samples {
		h.recorded += x.Value / n
		wall -= x.Value
	}
	h.besides, h.cpu, h.command = wall/n, used/n, rec.Cases[0].Command
	return h, nil
}

// ownTime is the processor time that this process has used, without its children, in s.
func ownTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// direct runs a command as anybody would and returns its wall clock in s.
func direct(words []string) (float64, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	begin := time.Now()
	err := cmd.Run()
	return time.Since(begin).Seconds(), err
}
