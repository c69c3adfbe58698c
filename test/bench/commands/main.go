// Command commands shows how long nearmetal's commands take that a user waits for most: help, plan, and exec in a cluster
// that runs, beside a program that does nothing: `make bench-commands`, from the repository's root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"nearmetal/internal/bench/stats"
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
	return nil
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
