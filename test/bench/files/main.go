// Command files measures what `make bench-files` prints: how fast VMs see the host's files by 9p and by virtiofs, beside
// a tmpfs in the VM, which stands for a native file system under the same emulation, and beside the host itself. It needs
// root, build/nearmetal, a virtiofsd, and numpy with mpi4py (scripts/wheels.sh numpy).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// parts are what can be measured alone: small files and find, imports of one process, of several at once, a large file, boots.
var parts = []string{"small", "imports", "ranks", "large", "boots"}

// ranks is how many processes import at once.
const ranks = 8

func main() {
	n := flag.Int("n", 5, "`runs` of each kind, in turns")
	mib := flag.Int("mib", 1024, "`MiB` of the file that is written and read")
	only := flag.String("parts", strings.Join(parts, ","), "the `parts` to measure")
	flag.Parse()
	if err := run(*n, *mib, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench-files:", err)
		os.Exit(1)
	}
}

func run(n, mib int, only []string) error {
	if n < 1 || mib < 1 || flag.NArg() > 0 {
		return errors.New("-n and -mib are 1 or more, and nothing follows them")
	}
	for _, part := range only {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("-parts: there is no %q, but %s", part, strings.Join(parts, ", "))
		}
	}
	program, err := filepath.Abs("build/nearmetal")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil || os.Geteuid() != 0 {
		return errors.Join(errors.New("run make first, and this as root from the top of the source tree"), err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "nm-files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(program, dir, mib, only)
	if err != nil {
		return err
	}
	defer b.down()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		b.down()
		os.RemoveAll(dir)
		os.Exit(130)
	}()
	places, err := b.places()
	if err != nil {
		return err
	}
	t := newTable(places)
	tasks := slices.DeleteFunc(b.tasks(), func(t task) bool { return !b.measures(t.part) })
	for i := range n {
		if len(tasks) == 0 {
			break
		}
		start := time.Now()
		for _, p := range places {
			for _, what := range tasks {
				if !what.fits(p) {
					continue
				}
				seconds, err := p.time(what.prepare(p), what.script(p))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, what.name, err)
				}
				t.add(what.name, p, seconds)
				fmt.Fprintf(os.Stderr, "%s, %s: %.2f s\n", what.name, p.name, seconds)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: %.0f s\n", i+1, n, time.Since(start).Seconds())
	}
	b.down()
	if b.measures("boots") {
		if err := b.boots(n, t); err != nil {
			return err
		}
	}
	return t.print(os.Stdout, n)
}
