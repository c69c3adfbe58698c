// Command slurm measures what `srun --vm` costs, on a real Slurm on this machine, each figure
// beside its peer in the same run: `make bench-slurm`. It needs root. Without KVM the VMs are
// emulated, and what happens in them takes tens of times longer than it would.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/stats"
	"nearmetal/test/slurm/bed"
)

func main() {
	rounds := flag.Int("n", 11, "rounds of each measurement, of which the median counts")
	many := flag.Int("many", 5, "rounds of what takes long: 64 ranks, boots of VMs")
	only := flag.String("only", "", "one `part`: plain, step, ranks, shell, boot")
	flag.Parse()
	if *rounds < 5 || *many < 5 {
		fmt.Fprintln(os.Stderr, "bench-slurm: fewer than 5 rounds give no median worth the name")
		os.Exit(2)
	}
	if err := run(*only, *rounds, *many); err != nil {
		fmt.Fprintln(os.Stderr, "bench-slurm:", err)
		os.Exit(1)
	}
}

const vms = "--vm=memory=256MiB,vcpus=2"

// parts are what is measured, by their names.
func parts(b *bed.Bed, build, plugin string, rounds, many int) map[string]func() error {
	return map[string]func() error{
		"plain": func() error { return withoutVMs(b, plugin, rounds) },
		"step":  func() error { return inVMs(b, func(job string) error { return step(b, job, 1, rounds) }) },
		"ranks": func() error { return inVMs(b, func(job string) error { return step(b, job, 64, many) }) },
		"shell": func() error { return inVMs(b, func(job string) error { return shell(b, job, many) }) },
		"boot":  func() error { return boot(b, build, many) },
	}
}

func run(only string, rounds, many int) error {
	if p := bed.Missing(); p != "" {
		return fmt.Errorf("no %s is installed: run scripts/install.sh slurm", p)
	}
	build, err := filepath.Abs("build")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "nmb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plugin := bed.Plugstack(build, filepath.Join(dir, "s"))
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugin})
	if err != nil {
		return err
	}
	defer b.Stop()
	all := parts(b, build, plugin, rounds, many)
	if only != "" {
		if all[only] == nil {
			return fmt.Errorf("-only %q: there are plain, step, ranks, shell and boot", only)
		}
		return all[only]()
	}
	for _, name := range []string{"plain", "step", "ranks", "shell", "boot"} {
		if err := all[name](); err != nil {
			return err
		}
	}
	return nil
}

// withoutVMs compares a job that wants no VMs with the plugin loaded and without it.
func withoutVMs(b *bed.Bed, plugin string, n int) error {
	stack := func(text string) func() error {
		return func() error {
			if err := os.WriteFile(b.Path("plugstack.conf"), []byte(text), 0o644); err != nil {
				return err
			}
			return b.AwaitIdle()
		}
	}
	srun := func() *exec.Cmd { return b.Command("srun", "hostname") }
	without, with, err := pair(n, side{stack("# none\n"), srun}, side{stack(plugin), srun})
	if err != nil {
		return err
	}
	fmt.Printf("srun hostname, no VMs       without the plugin %s   with it %s   difference %+.1f ms\n", ms(without), ms(with), diff(without, with))
	return nil
}

// inVMs measures in a job whose VMs run.
func inVMs(b *bed.Bed, measure func(job string) error) error {
	up := b.Path("up")
	os.Remove(up)
	hold := b.Command("sbatch", "--parsable", "-n2", "--mem=1500", vms, "-o", b.Path("out"), "--wrap", "srun true; touch "+up+"; sleep 600")
	id, err := hold.Output()
	if err != nil {
		return fmt.Errorf("sbatch: %w", err)
	}
	job := strings.TrimSpace(string(id))
	defer func() { b.Command("scancel", job).Run(); b.AwaitIdle() }()
	if err := bed.Await("VMs", func() bool { _, err := os.Stat(up); return err == nil }); err != nil {
		return err
	}
	return measure(job)
}

// step compares a step of that many ranks in the job's VM with one on the host.
func step(b *bed.Bed, job string, ranks, n int) error {
	srun := func(more ...string) func() *exec.Cmd {
		args := append([]string{"--jobid=" + job, "--overlap", "--overcommit", fmt.Sprint("-n", ranks)}, more...)
		return func() *exec.Cmd { return b.Command("srun", append(args, "true")...) }
	}
	native, virtual, err := pair(n, side{nil, srun("--no-vm")}, side{nil, srun()})
	if err != nil {
		return err
	}
	fmt.Printf("a step of %2d ranks          on the host %s   in a VM that runs %s   ratio %.2f   added %.1f ms, %.2f ms a rank\n",
		ranks, ms(native), ms(virtual), float64(virtual)/float64(native), diff(native, virtual), diff(native, virtual)/float64(ranks))
	return nil
}

// shell reports what of 64 ranks is the VM's own work: as many processes that a shell starts there, in one step.
func shell(b *bed.Bed, job string, n int) error {
	srun := func(more ...string) func() *exec.Cmd {
		args := append([]string{"--jobid=" + job, "--overlap", "-n1"}, more...)
		return func() *exec.Cmd {
			return b.Command("srun", append(args, "sh", "-c", "for i in $(seq 64); do /bin/true & done; wait")...)
		}
	}
	native, virtual, err := pair(n, side{nil, srun("--no-vm")}, side{nil, srun()})
	if err != nil {
		return err
	}
	fmt.Printf("64 processes of one rank    on the host %s   in a VM that runs %s   ratio %.2f\n", ms(native), ms(virtual), float64(virtual)/float64(native))
	return nil
}

// boot compares a job that boots VMs with nearmetal run.
func boot(b *bed.Bed, build string, n int) error {
	idle := func() error { return b.AwaitIdle() }
	alone := func() *exec.Cmd {
		cmd := b.Command(filepath.Join(build, "nearmetal"), "run", "--vms", "1", "--vcpus", "2", "--memory", "256MiB", "--", "true")
		cmd.Env = append(cmd.Env, "NEARMETAL_RUNTIME_DIR="+b.Path("alone"))
		return cmd
	}
	srun := func() *exec.Cmd { return b.Command("srun", "-n2", "--ntasks-per-node=2", "--mem=1500", vms, "true") }
	run, job, err := pair(n, side{idle, alone}, side{idle, srun})
	if err != nil {
		return err
	}
	fmt.Printf("a job that boots one VM     nearmetal run %s   srun --vm %s   ratio %.2f\n", ms(run), ms(job), float64(job)/float64(run))
	return nil
}

// side is one of two things to compare: before, and what is timed.
type side struct {
	before  func() error
	command func() *exec.Cmd
}

// pair times both sides in turn, one round of each that does not count first, and returns the medians.
func pair(n int, a, b side) (time.Duration, time.Duration, error) {
	var times [2][]time.Duration
	for round := -1; round < n; round++ {
		for i, s := range []side{a, b} {
			if s.before != nil {
				if err := s.before(); err != nil {
					return 0, 0, err
				}
			}
			cmd := s.command()
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return 0, 0, fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
			}
			if round >= 0 {
				times[i] = append(times[i], time.Since(start))
			}
		}
	}
	return stats.MedianDuration(times[0]), stats.MedianDuration(times[1]), nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func diff(a, b time.Duration) float64 { return float64(b-a) / 1e6 }
