// Package region makes the memory that the VMs of one host share: a file in memory that never has a name, allocated and
// zeroed at once, with the header of docs/region.md at its start. Backends pass its descriptor to the VMs.
package region

import (
	"fmt"
	"io"
	"math/bits"
	"os"
)

// Options describe the region to make. The zero value of HostNode is node 0; -1 means any node.
type Options struct {
	SizeBytes     uint64 // of the file: a power of two, as PCI requires, and at least MinBytes
	Backing       string // "shm" (also ""), or "hugetlb"
	HugePageBytes uint64 // page size with "hugetlb"; 0: the smallest that is mounted
	HostNode      int    // NUMA node of the memory; -1: any
	Dir           string // a tmpfs or hugetlbfs directory; "": /dev/shm, or the hugetlbfs mount found
	Devdax        bool   // for a guest's /dev/dax0.0: the region starts at DevdaxOffset
	Cluster       ID     // id of the cluster; all zeros: a new random one
}

// Region is a region and the file that contains it.
type Region struct {
	File   *os.File // read and write; nameless, so that it is freed with its last descriptor
	Header Header
	Offset int64 // of the header in File, bytes: 0 or DevdaxOffset
}

// Close closes the descriptor. The memory is freed when the last VM that has it ends.
func (r *Region) Close() error { return r.File.Close() }

// Read finds and checks the header in f, of fileBytes: at the file's start, or at the offset of a devdax region. It
// returns the header and its offset in bytes, and fails if there is no valid header.
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
