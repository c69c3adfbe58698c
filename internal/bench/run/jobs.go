package run

import (
	"fmt"
	"os"
	"path/filepath"

	"nearmetal/internal/bench/batch"
)

// JobVMs returns the kinds of VMs that the variants of a run in Slurm jobs need, because a job has one kind. file is the
// cluster file of the VMs, "" for none. VMs that lack something get a cluster file of their own, in the run's
// directory dir, which is made for it.
func JobVMs(dir, file string, variants []Variant) ([]batch.VM, error) {
	var out []batch.VM
	for _, v := range variants {
		if v.Spec == nil || !v.FirstMPI { // MPIs share VMs
			continue
		}
		vm := batch.VM{Label: v.Label, Value: fmt.Sprintf("vms=%d,memory=%dMiB", v.VMs, v.MemoryBytes>>20/int64(max(1, v.VMs)))}
		switch {
		case len(v.Ablated) > 0:
			text, err := v.Spec.YAML()
			if err != nil {
				return nil, err
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, fmt.Errorf("cannot make the run's directory: %w", err)
			}
			vm.Value = filepath.Join(dir, v.Label+".yaml")
			if err := os.WriteFile(vm.Value, text, 0o644); err != nil {
				return nil, fmt.Errorf("cannot write the VMs of a job: %w", err)
			}
		case file != "":
			path, err := filepath.Abs(file)
			if err != nil {
				return nil, err
			}
			vm.Value = path
		}
		out = append(out, vm)
	}
	return out, nil
}
