// Package faultdisk makes the disk of journals fail, for tests.
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

// FailAt makes operation number n, counted from 1, fail on the files of all journals opened from now on: a write writes
// half and returns ENOSPC, a sync returns EIO. stop ends that and reports whether the operation failed.
func FailAt(n int) (stop func() bool) {
	left := n
	end := journal.OnOpen(func(d journal.Disk) journal.Disk { return disk{d, &left} })
	return func() bool { end(); return left <= 0 }
}
