package remote

import (
	"os"
	"path/filepath"

	"nearmetal/internal/host/cache"
)

// Keep removes copies of other versions of this program that have not been used for long. It does so only if this
// program is itself a copy that another host has sent. It does not remove a copy from which a program runs.
func Keep() {
	if exe, err := os.Executable(); err == nil {
		keep(exe)
	}
}

// keep is Keep for the program at .../nearmetal/programs/SUM/bin/NAME.
func keep(exe string) {
	copied := filepath.Dir(filepath.Dir(exe))
	programs := filepath.Dir(copied)
	if filepath.Base(programs) != "programs" || filepath.Base(filepath.Dir(programs)) != "nearmetal" {
		return
	}
	d, err := cache.At(programs)
	if err == nil && d.Hold(filepath.Base(copied)) == nil {
		d.TrimTrees(cache.TreeAge, "")
	}
}
