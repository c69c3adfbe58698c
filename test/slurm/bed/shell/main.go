// Command shell runs a command, or a shell, beside a Slurm cluster on this machine (package
// bed), for somebody who wants to look at it: `make slurm-shell`. It needs root. BED_CGROUP=1: with cgroups, 2: the unified hierarchy; BED_NETWORKS=1: each node in a network
// namespace of its own;
// BED_EXTRA: more lines of slurm.conf.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"nearmetal/test/slurm/bed"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "slurm-shell:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	build, err := filepath.Abs("build")
	if err != nil {
		return err
	}
	b, err := bed.Start(bed.Options{Nodes: 2, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Plugstack: bed.Plugstack(build, "/tmp/nms-state"), Cgroup: os.Getenv("BED_CGROUP") != "", CgroupV2: os.Getenv("BED_CGROUP") == "2", Networks: os.Getenv("BED_NETWORKS") != "", Extra: os.Getenv("BED_EXTRA")})
	if err != nil {
		return err
	}
	defer b.Stop()
	env := []string{"SLURM_CONF=" + b.Conf(), "BED=" + b.Dir}
	if len(args) == 0 {
		args, env = []string{"bash"}, append(env, prompt)
		fmt.Fprintln(os.Stderr, "slurm-shell: sinfo, sbatch and srun are a Slurm of two nodes on this machine, with the plugin: try srun --vm hostname; exit ends it")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// prompt is the variable by which bash marks its prompt. bash reads its prompt from files: it is marked when it is
// first shown.
const prompt = `PROMPT_COMMAND=PS1="(slurm-shell) $PS1"; unset PROMPT_COMMAND`
