package bed

import (
	"fmt"
	"os/exec"
)

// Version is that of the Slurm that is installed: 24, 11 for 24.11.5.
func Version() (year, month int, err error) {
	path, err := find("slurmd")
	if err != nil {
		return 0, 0, err
	}
	out, err := exec.Command(path, "-V").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("slurmd -V: %w", err)
	}
	// "slurm 24.11.5" of upstream's, "slurm-wlm 24.11.5" of Debian's.
	var name string
	if _, err := fmt.Sscanf(string(out), "%s %d.%d", &name, &year, &month); err != nil {
		return 0, 0, fmt.Errorf("slurmd -V says %q", out)
	}
	return year, month, nil
}
