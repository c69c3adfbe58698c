package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// The part count: messages between two ranks on one RDMA device (soft RoCE), in a VM with one vCPU whose clock is the
// number of its instructions (QEMU's -icount): a nanosecond each, the kernel's among them. Neither the host's load nor
// its cores change that: the same way again differs by some 0.3 %. What it does not show is what an instruction
// waits for. Both ranks share the vCPU. One that finds nothing yields it to the other one.

// counter starts QEMU for nearmetal with that clock. Probes of QEMU start no kernel, and stay as they are.
const counter = `#!/bin/sh
case " $* " in *" -kernel "*) exec qemu-system-x86_64 "$@" -icount shift=0,sleep=off ;; esac
exec qemu-system-x86_64 "$@"
`

// counted is the VM.
const counted = `qemu: %s/qemu
vms: [{count: 1, vcpus: 1, memory: 1GiB}]
placement: {pin: never}
`

// Run in the VM.
var (
	//go:embed device.sh
	deviceScript string
	//go:embed count.sh
	countScript string
	//go:embed four.sh
	fourScript string
)

// countedWay is a way of the part count. env is a variable that nearmetal sets for it, "": none.
type countedWay struct {
	name  string
	env   string
	words []string
}

var countedWays = []countedWay{
	{"ours", "FI_OFI_RXM_BUFFER_SIZE=16640", []string{"fabric_bench", "messages", "ivshmem"}},
	{"verbs;ofi_rxm", "", []string{"fabric_bench", "messages", "verbs;ofi_rxm"}},
	{"again", "", []string{"fabric_bench", "messages", "verbs;ofi_rxm"}},
	{"UCX rc", "", []string{"ucp_bench", "messages"}},
}

// countMost is how long a way may take on a busy machine.
const countMost = 4 * time.Minute

// withCounted boots the VM, and makes its device, and by the script its regions, for f. inside runs the script's words, for most at the longest.
func withCounted(script string, most time.Duration, f func(dir string, inside func(words ...string) (string, error)) error) (err error) {
	dir, err := os.MkdirTemp("/tmp", "nmc") // the VM sees it
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build, err := filepath.Abs("build")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"qemu": counter, "cluster.yaml": fmt.Sprintf(counted, dir), "device": deviceScript, "script": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	// Ctrl-C ends what runs, and then the VM.
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nearmetal := func(parent context.Context, words ...string) (string, error) {
		ctx, cancel := context.WithTimeout(parent, most)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(build, "nearmetal"), words...)
		cmd.Env = append(os.Environ(), "NEARMETAL_RUNTIME_DIR="+filepath.Join(dir, "clusters"), "NEARMETAL_ROOT_WRITES=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			if stopped := interrupted.Err(); stopped != nil {
				return "", stopped
			}
			return "", fmt.Errorf("nearmetal %s: %w: %s", strings.Join(words, " "), err, tail(errs.String()))
		}
		return out.String(), nil
	}
	defer func() {
		_, down := nearmetal(context.Background(), "down", "counted")
		err = errors.Join(err, down)
	}()
	if _, err := nearmetal(interrupted, "up", "-f", filepath.Join(dir, "cluster.yaml"), "--name", "counted"); err != nil {
		return err
	}
	inside := func(words ...string) (string, error) {
		return nearmetal(interrupted, append([]string{"exec", "-c", "counted", "--", "sh", filepath.Join(dir, "script"), filepath.Join(build, "c")}, words...)...)
	}
	if _, err := nearmetal(interrupted, "exec", "-c", "counted", "--", "sh", filepath.Join(dir, "device")); err != nil {
		return err
	}
	if _, err := inside("regions"); err != nil {
		return err
	}
	return f(dir, inside)
}

// counts prints the part count.
func counts() error {
	return withCounted(countScript, countMost, func(_ string, inside func(...string) (string, error)) error {
		return countPair(inside)
	})
}

func countPair(inside func(words ...string) (string, error)) error {
	figures := map[string]map[string]float64{} // "latency 8" of a way
	var order []string
	for _, w := range countedWays {
		out, err := inside(append([]string{w.env}, w.words...)...)
		if err != nil && (w.name == countedWays[0].name || errors.Is(err, context.Canceled)) {
			return err
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench-hosts: %s left out: %v\n", w.name, err)
		}
		for _, line := range strings.Split(out, "\n") {
			f := strings.Fields(line)
			if len(f) != 3 || (f[0] != "latency" && f[0] != "bandwidth") {
				continue
			}
			v, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return fmt.Errorf("%s: %q", w.name, line)
			}
			what := f[0] + " " + f[1]
			if figures[what] == nil {
				figures[what] = map[string]float64{}
				order = append(order, what)
			}
			figures[what][w.name] = v
		}
	}
	printCounts(order, figures)
	return nil
}

// printCounts prints each figure of ours, and its ratio to each other way, above 1 where ours is better.
func printCounts(order []string, figures map[string]map[string]float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Println("a message by its instructions, a nanosecond each (latency: us, bandwidth: GB/s), and ratios, above 1 where ours is better")
	fmt.Fprint(w, "bytes\t")
	for _, c := range countedWays {
		fmt.Fprintf(w, "%s\t", c.name)
		if c.name != countedWays[0].name {
			fmt.Fprint(w, "ratio\t")
		}
	}
	fmt.Fprintln(w)
	for _, what := range order {
		ours := figures[what][countedWays[0].name]
		fmt.Fprintf(w, "%s\t%.4g\t", what, ours)
		for _, c := range countedWays[1:] {
			v, ok := figures[what][c.name]
			r := v / ours
			if strings.HasPrefix(what, "bandwidth") {
				r = ours / v
			}
			if !ok {
				fmt.Fprint(w, "-\t-\t")
				continue
			}
			fmt.Fprintf(w, "%.4g\t%.3f\t", v, r)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}
