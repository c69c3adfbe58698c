// Command boot measures what `make bench-boot` promises: how long two VMs take to be
// ready, phase by phase, beside bare QEMU processes that start the same guest in the same
// run; what `nearmetal exec` adds to a program; and what nearmetal and a VM cost in memory.
// It needs build/nearmetal.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemu"
)

// A result is one figure that the project has promised, or a figure beside it.
type result struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Bar is what Median may be at most; 0: nothing was promised.
	Bar float64 `json:"bar,omitempty"`
	// Guest says that the time passed in a guest, and means nothing where it is emulated.
	Guest bool `json:"guest,omitempty"`
}

// report is all that was measured.
type report struct {
	Accel   string   `json:"accel"`
	QEMU    string   `json:"qemu"`
	Runs    int      `json:"runs"`
	Results []result `json:"results"`
}

func (r *report) add(x result) { r.Results = append(r.Results, x) }

// settings are the flags.
type settings struct {
	n       int
	memory  string // of each VM
	stream  int64  // bytes
	program string // build/nearmetal
}

const rshVariable = "NEARMETAL_BENCH_RSH"

func main() {
	// A cluster that this program owns has this program for its remote shell.
	if filepath.Base(os.Args[0]) == "nearmetal-rsh" {
		err := unix.Exec(os.Getenv(rshVariable), os.Args, os.Environ())
		fmt.Fprintln(os.Stderr, "nearmetal-rsh:", err)
		os.Exit(255)
	}
	var s settings
	flag.IntVar(&s.n, "n", 5, "`runs` of each kind")
	flag.StringVar(&s.memory, "memory", "2GiB", "`size` of a VM's memory, on both sides")
	flag.Int64Var(&s.stream, "stream", 1<<30, "`bytes` through exec's streams")
	only := flag.String("only", "", "`part`: boot, exec or memory (default all)")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if err := run(s, *only, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench-boot:", err)
		os.Exit(1)
	}
}

func run(s settings, only string, asJSON bool) error {
	if s.n < 1 || flag.NArg() > 0 || only != "" && only != "boot" && only != "exec" && only != "memory" {
		return fmt.Errorf("see -help")
	}
	var err error
	if s.program, err = filepath.Abs("build/nearmetal"); err == nil {
		_, err = os.Stat(s.program)
	}
	if err != nil {
		return fmt.Errorf("run make first, and this from the top of the source tree: %w", err)
	}
	dir, err := os.MkdirTemp("/tmp", "nm-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	os.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	os.Unsetenv("NEARMETAL_CLUSTER")
	os.Setenv(rshVariable, s.program+"-rsh")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	path, err := qemu.Find("")
	if err != nil {
		return err
	}
	caps, err := qemu.Probe(ctx, path)
	if err != nil {
		return err
	}
	r := &report{Runs: s.n, QEMU: fmt.Sprint("QEMU ", caps.Version)}
	for _, part := range []struct {
		name string
		f    func(context.Context, settings, *report) error
	}{{"boot", func(ctx context.Context, s settings, r *report) error { return boot(ctx, s, caps, r) }}, {"exec", execs}, {"memory", memory}} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.f(ctx, s, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.print(os.Stdout)
}
