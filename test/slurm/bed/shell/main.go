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
	o := bed.Options{Nodes: 2, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Plugstack: bed.Plugstack(build, "/tmp/nms-state"),
		Cgroup: os.Getenv("BED_CGROUP") != "", CgroupV2: os.Getenv("BED_CGROUP") == "2", Networks: os.Getenv("BED_NETWORKS") != "",
		Extra: os.Getenv("BED_EXTRA")}
	// Open MPI, as in slurm example; without the plugin every srun would fail.
	if pmix, _ := filepath.Glob("/usr/lib*/*/slurm-wlm/mpi_pmix.so"); len(pmix) > 0 {
		o.MPI = "pmix"
	}
	b, err := bed.Start(o)
	if err != nil {
		return err
	}
	defer b.Stop()
	env := []string{"SLURM_CONF=" + b.Conf(), "BED=" + b.Dir, "PATH=" + build + ":" + os.Getenv("PATH"),
		"OMPI_MCA_reachable=weighted"} // as in Environ of the bed
	if len(args) == 0 {
		args, env = []string{"bash"}, append(env, prompt)
		fmt.Fprintln(os.Stderr, banner)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// banner is what a shell begins with.
const banner = `slurm-shell: sinfo, sbatch and srun are a Slurm of two nodes on this machine, with the plugin; nearmetal is in PATH.
  srun --vm hostname              srun --vm -n 4 ./solver    (Open MPI; MPICH and Intel MPI need --mpi=pmi2)
  sacct has no data: it needs slurmdbd and its database, which are not started. scontrol show job shows what runs.
exit ends it.`

// prompt is the variable by which bash marks its prompt. bash reads its prompt from files: it is marked when it is
// first shown.
const prompt = `PROMPT_COMMAND=PS1="(slurm-shell) $PS1"; unset PROMPT_COMMAND`
