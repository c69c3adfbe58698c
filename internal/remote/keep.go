package remote

import (
	"os"
	"path/filepath"

	"nearmetal/internal/host/cache"
)

// Keep removes copies of other versions of this program that were not used for long, where it is a copy that another host has
// sent. No copy is removed while a program runs from it.
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
