package run

import (
	"strconv"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/launch"
)

// words are srun's before a program's: as many ranks on each of the job's nodes, in its VMs
// or around them (docs/slurm.md).
func (s *Step) words(f *mpi.Flavour, ranks, threads int) []string {
	pmi := "pmi2"
	if f.Launcher.Library == launch.OpenMPI {
		pmi = "pmix"
	}
	w := []string{"srun", "--mpi=" + pmi, "--nodes=" + strconv.Itoa(s.Nodes), "--ntasks=" + strconv.Itoa(ranks)}
	if ranks%s.Nodes == 0 {
		w = append(w, "--ntasks-per-node="+strconv.Itoa(ranks/s.Nodes))
	}
	if threads > 1 {
		w = append(w, "--cpus-per-task="+strconv.Itoa(threads))
	}
	if s.HasVM && !s.VM {
		w = append(w, "--no-vm")
	}
	return w
}

// InJob makes variants into those of a Slurm job on nodes hosts. What the job's VMs are was
// said when it was submitted.
func InJob(list []Variant, nodes int) []Variant {
	vms := false
	for _, v := range list {
		vms = vms || v.Spec != nil
	}
	for i := range list {
		v := &list[i]
		v.Step = &Step{Nodes: nodes, VM: v.Spec != nil, HasVM: vms}
		v.Spec, v.CPUs = nil, nil
	}
	return list
}
