// Command commands shows how long nearmetal's commands take that a user waits for most: help, plan, and exec in a cluster
// that runs, beside a program that does nothing, and how much CPU top takes: `make bench-commands`, from the repository's root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/stats"
)

var (
	program = flag.String("program", "build/nearmetal", "nearmetal")
	runs    = flag.Int("runs", 30, "runs of each command, in turns, of which the median is shown")
	vms     = flag.Bool("vms", true, "start a cluster, and measure exec in it")
)

// name is that of the cluster.
const name = "bench-commands"

func main() {
	flag.Parse()
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-commands:", err)
		os.Exit(1)
	}
}

func measure() error {
	if *runs < 1 {
		return fmt.Errorf("-runs: %d is less than 1", *runs)
	}
	commands := [][]string{
		{"true"}, {*program, "--help"}, {*program, "version"}, {*program, "plan", "--vms", "2"}, {*program, "ps"},
	}
	if *vms {
		up := exec.Command(*program, "-q", "up", "--vms", "2", "--memory", "512MiB", "--no-share", "--name", name)
		up.Stderr = os.Stderr
		if err := up.Run(); err != nil {
			return fmt.Errorf("%v: %w", up.Args, err)
		}
		defer exec.Command(*program, "-q", "down", name).Run()
		commands = append(commands, []string{*program, "exec", name, "--", "true"}, []string{*program, "top", name, "--json"})
	}
	times := make([][]float64, len(commands))
	for range *runs { // in turns, so that what else the machine does hits all
		for i, c := range commands {
			took, err := once(c)
			if err != nil {
				return err
			}
			times[i] = append(times[i], took.Seconds()*1000)
		}
	}
	fmt.Printf("median of %d runs in turns, from the start of the process to its end\n\n", *runs)
	for i, c := range commands {
		if c[0] == *program {
			c = append([]string{"nearmetal"}, c[1:]...)
		}
		fmt.Printf("%-44s %8.1f ms\n", strings.Join(c, " "), stats.Median(times[i]))
	}
	if *vms {
		share, err := watching()
		if err != nil {
			return err
		}
		fmt.Printf("\nCPU that a command which goes on takes, over %d intervals\n\n%-44s %8.2f %% of a core\n",
			intervals, "nearmetal top "+name+" (once a second)", share*100)
	}
	return nil
}

// intervals are those over which watching measures.
const intervals = 10

// watching returns the share of a core that top takes while it shows the cluster once a second, without its start.
func watching() (float64, error) {
	var cpu [2]time.Duration
	for i, count := range []int{1, 1 + intervals} {
		cmd := exec.Command(*program, "top", name, "--interval", "1s", "--count", strconv.Itoa(count))
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%v: %w", cmd.Args, err)
		}
		cpu[i] = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return float64(cpu[1]-cpu[0]) / float64(intervals*time.Second), nil
}

// once runs a command without streams.
func once(args []string) (time.Duration, error) {
	cmd := exec.Command(args[0], args[1:]...)
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	var status *exec.ExitError
	if errors.As(err, &status) {
		err = fmt.Errorf("%q: %w", args, err)
	}
	return took, err
}
