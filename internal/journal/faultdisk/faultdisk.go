// Package faultdisk has the disk of journals fail, for tests.
package faultdisk

import (
	"golang.org/x/sys/unix"

	"nearmetal/internal/journal"
)

// disk is a journal's file whose operation number *left fails.
type disk struct {
	journal.Disk
	left *int
}

func (d disk) Write(p []byte) (int, error) {
	if *d.left--; *d.left == 0 {
		n, _ := d.Disk.Write(p[:len(p)/2])
		return n, unix.ENOSPC
	}
	return d.Disk.Write(p)
}

func (d disk) Sync() error {
	if *d.left--; *d.left == 0 {
		return unix.EIO
	}
	return d.Disk.Sync()
}

// FailAt has operation number n, from 1, of the files of all journals opened from now on fail: a write
// writes half and returns ENOSPC, a sync returns EIO. stop ends that and reports whether it failed.
func FailAt(n int) (stop func() bool) {
	left := n
	end := journal.OnOpen(func(d journal.Disk) journal.Disk { return disk{d, &left} })
	return func() bool { end(); return left <= 0 }
}
