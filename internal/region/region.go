// Package region makes the memory that the VMs of one host share: a file in memory
// that never has a name, filled and zeroed at once, with the header of docs/region.md
// at its start. Backends hand it to the VMs by its descriptor.
package region

import (
	"fmt"
	"io"
	"math/bits"
	"os"
)

// Options say what region to make. The zero value of HostNode is node 0: -1 is any.
type Options struct {
	SizeBytes     uint64 // of the file: a power of two, MinBytes or more (PCI wants it)
	Backing       string // "shm" (also ""), or "hugetlb"
	HugePageBytes uint64 // page size with "hugetlb"; 0: the smallest for which there is a mount
	HostNode      int    // NUMA node of the memory; -1: any
	Dir           string // a tmpfs or hugetlbfs directory; "": /dev/shm, or the mount that is found
	Devdax        bool   // for a guest's /dev/dax0.0: the region starts at DevdaxOffset
	Cluster       ID     // names the cluster; all zeros: a new random one
}

// Region is a region and the file that holds it.
type Region struct {
	File   *os.File // read and write; nameless; nothing is left when the last descriptor goes
	Header Header
	Offset int64 // of the header in File, bytes: 0 or DevdaxOffset
}

// Close drops the descriptor. The memory goes when the last VM that has it ends.
func (r *Region) Close() error { return r.File.Close() }

// Read finds and checks the header in f, of fileBytes: at its start, or where a devdax
// region has it. It returns the header and its offset in bytes.
func Read(f io.ReaderAt, fileBytes uint64) (Header, int64, error) {
	b := make([]byte, HeaderBytes)
	var first error
	for _, off := range []uint64{0, DevdaxOffset} {
		if fileBytes < off+HeaderBytes {
			break
		}
		if _, err := f.ReadAt(b, int64(off)); err != nil {
			return Header{}, 0, fmt.Errorf("reading the region's header: %w", err)
		}
		h, err := ParseHeader(b, fileBytes-off)
		if err == nil {
			return h, int64(off), nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = fmt.Errorf("smaller than a region's header (%d bytes)", HeaderBytes)
	}
	return Header{}, 0, first
}

func (o *Options) check() error {
	switch {
	case bits.OnesCount64(o.SizeBytes) != 1:
		return fmt.Errorf("region: its size, %d bytes, is not a power of two, which PCI wants; the next is %d",
			o.SizeBytes, nextPowerOfTwo(o.SizeBytes))
	case o.SizeBytes < MinBytes:
		return fmt.Errorf("region: its size, %d bytes, is below the least, %d", o.SizeBytes, MinBytes)
	case o.SizeBytes > MaxBytes:
		return fmt.Errorf("region: its size, %d bytes, is above the most, %d", o.SizeBytes, uint64(MaxBytes))
	case o.Devdax && o.SizeBytes < 2*DevdaxOffset:
		return fmt.Errorf("region: its size, %d bytes, is below the least for devdax, %d", o.SizeBytes, 2*DevdaxOffset)
	case o.HostNode < -1 || o.HostNode > maxNode:
		return fmt.Errorf("region: there is no NUMA node %d", o.HostNode)
	}
	switch o.Backing {
	case "", "shm":
		if o.HugePageBytes != 0 {
			return fmt.Errorf("region: huge pages of %d bytes need the backing hugetlb", o.HugePageBytes)
		}
	case "hugetlb":
		if o.HugePageBytes != 0 && bits.OnesCount64(o.HugePageBytes) != 1 {
			return fmt.Errorf("region: there are no huge pages of %d bytes", o.HugePageBytes)
		}
	default:
		return fmt.Errorf("region: unknown backing %q: shm or hugetlb", o.Backing)
	}
	return nil
}

func nextPowerOfTwo(n uint64) uint64 {
	if n <= MinBytes {
		return MinBytes
	}
	return min(uint64(1)<<bits.Len64(n-1), MaxBytes)
}
