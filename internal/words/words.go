// Package words formats counts and sizes for people. Formats for programs (QEMU, Slurm, a cluster file) are in the
// packages that write them.
package words

import (
	"fmt"
	"strconv"
	"strings"
)

// Count returns n with its noun: "1 core", "2 cores".
func Count(n int, one, many string) string {
	return strconv.Itoa(n) + " " + Plural(n, one, many)
}

// Plural returns one if n is 1, else many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Bytes formats a number of bytes in GiB, MiB or KiB: in the largest unit in which it is at least ten, or exact, with
// one decimal if that is not 0: "64 GiB", "1.5 MiB", "3000 MiB", "512 B". The error is at most half a per cent.
func Bytes(b uint64) string {
	for _, u := range []struct {
		bytes uint64
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if b >= 10*u.bytes || b >= u.bytes && b%u.bytes*10%u.bytes == 0 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(b)/float64(u.bytes)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", b)
}
