package run

import (
	"os"
	"strconv"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/launch"
	"nearmetal/internal/spec"
)

// words returns srun's words before a program's: equal numbers of ranks on each of the job's nodes, in its VMs or
// outside them (docs/slurm.md). With inTurns, neighbouring ranks run on different nodes; if the nodes do not divide
// the ranks they always do, because Slurm spreads them evenly that way.
func (s *Step) words(f *mpi.Flavour, ranks, threads int, inTurns bool) []string {
	pmi := "pmi2"
	if f.Launcher.Library == launch.OpenMPI {
		pmi = "pmix"
	}
	w := []string{"srun", "--mpi=" + pmi, "--nodes=" + strconv.Itoa(s.Nodes), "--ntasks=" + strconv.Itoa(ranks)}
	if ranks%s.Nodes == 0 {
		w = append(w, "--ntasks-per-node="+strconv.Itoa(ranks/s.Nodes))
	}
	if inTurns || ranks%s.Nodes != 0 {
		w = append(w, "--distribution=cyclic")
	}
	if threads > 1 {
		w = append(w, "--cpus-per-task="+strconv.Itoa(threads))
	}
	if s.HasVM && !s.VM {
		w = append(w, "--no-vm")
	}
	return w
}

// pairWords returns srun's words before a command that runs on two of the job's hosts: as the server on this one, and
// as the client on another.
func (s *Step) pairWords() []string {
	w := []string{"srun", "--mpi=none", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"}
	if s.HasVM && !s.VM {
		w = append(w, "--no-vm")
	}
	return w
}

// pairEnv returns the client's variable with the address of the server, which is in the first VM of this node.
// Natively srun provides it.
func (s *Step) pairEnv() []string {
	node := os.Getenv("SLURMD_NODENAME")
	if s.FirstVM == "" || node == "" {
		return nil
	}
	return []string{"PAIR_SERVER=" + spec.HostPrefix(node) + s.FirstVM}
}

// InJob turns variants into those of a Slurm job on nodes hosts. The job's VMs were determined at its submission.
func InJob(list []Variant, nodes int) []Variant {
	vms := false
	for _, v := range list {
		vms = vms || v.Spec != nil
	}
	for i := range list {
		v := &list[i]
		v.Step = &Step{Nodes: nodes, VM: v.Spec != nil, HasVM: vms}
		if v.Spec != nil {
			v.Step.FirstVM = spec.VMNames(v.Spec)[0]
		}
		v.Spec, v.CPUs = nil, nil
	}
	return list
}
