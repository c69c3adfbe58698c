package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The header's constants. include/nearmetal/region.h defines the same ones for C.
const (
	Version     = 1
	HeaderBytes = 4096
	MinBytes    = 1 << 20 // smallest region, bytes
	MaxBytes    = 1 << 46 // largest region, bytes
	// DevdaxOffset is the offset in bytes at which a devdax region starts in its file: a guest's /dev/dax0.0 shows the
	// file from there on.
	DevdaxOffset = 2 << 20

	FlagHugetlb uint64 = 1 << 0 // backed by a hugetlbfs file
	FlagDevdax  uint64 = 1 << 1 // starts at DevdaxOffset of its file
	flagsKnown         = FlagHugetlb | FlagDevdax

	LayoutNone = 0 // the layout area is all zeros
)

const magic = "NMREGION"

// Offsets of the header's fields in bytes.
const (
	offMagic         = 0
	offVersion       = 8
	offHeaderBytes   = 12
	offSize          = 16
	offFlags         = 24
	offKey           = 32
	offCluster       = 48
	offHost          = 64
	offLayout        = 80
	offLayoutBytes   = 88
	offLayoutType    = 96
	offLayoutVersion = 100
	offScratch       = 104
	offScratchBytes  = 112
	offCRC           = HeaderBytes - 4
)

// ID is the 16-byte id of a cluster or a host.
type ID [16]byte

// Header is the first page of a region, described in docs/region.md.
type Header struct {
	SizeBytes     uint64 // of the region, the header included
	Flags         uint64
	Key           ID // random, new for each region
	Cluster       ID
	Host          ID     // the host's machine-id under Key: see HostID
	LayoutOffset  uint64 // of the area for messages, from the header's first byte
	LayoutBytes   uint64
	LayoutType    uint32
	LayoutVersion uint32
	ScratchOffset uint64 // of the area for the test programs
	ScratchBytes  uint64
}

// marshal returns the header as its page, checksum included.
func (h *Header) marshal() []byte {
	b := make([]byte, HeaderBytes)
	le := binary.LittleEndian
	copy(b[offMagic:], magic)
	le.PutUint32(b[offVersion:], Version)
	le.PutUint32(b[offHeaderBytes:], HeaderBytes)
	le.PutUint64(b[offSize:], h.SizeBytes)
	le.PutUint64(b[offFlags:], h.Flags)
	copy(b[offKey:], h.Key[:])
	copy(b[offCluster:], h.Cluster[:])
	copy(b[offHost:], h.Host[:])
	le.PutUint64(b[offLayout:], h.LayoutOffset)
	le.PutUint64(b[offLayoutBytes:], h.LayoutBytes)
	le.PutUint32(b[offLayoutType:], h.LayoutType)
	le.PutUint32(b[offLayoutVersion:], h.LayoutVersion)
	le.PutUint64(b[offScratch:], h.ScratchOffset)
	le.PutUint64(b[offScratchBytes:], h.ScratchBytes)
	le.PutUint32(b[offCRC:], crc32c(b[:offCRC]))
	return b
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// ParseHeader reads a header from b, the first HeaderBytes of a region of which availableBytes can be mapped. It treats
// b as hostile: in a header that it returns without an error every area is inside the region.
func ParseHeader(b []byte, availableBytes uint64) (Header, error) {
	if len(b) < HeaderBytes || availableBytes < HeaderBytes {
		return Header{}, fmt.Errorf("smaller than a region's header (%d bytes)", HeaderBytes)
	}
	le := binary.LittleEndian
	if string(b[:len(magic)]) != magic {
		return Header{}, errors.New("not a nearmetal region (no " + magic + " at its start)")
	}
	if v := le.Uint32(b[offVersion:]); v != Version {
		return Header{}, fmt.Errorf("a region of version %d; this nearmetal reads version %d", v, Version)
	}
	if le.Uint32(b[offCRC:]) != crc32c(b[:offCRC]) {
		return Header{}, errors.New("the header's checksum is wrong")
	}
	if n := le.Uint32(b[offHeaderBytes:]); n != HeaderBytes {
		return Header{}, fmt.Errorf("the header's size is %d bytes, want %d", n, HeaderBytes)
	}
	h := Header{
		SizeBytes:     le.Uint64(b[offSize:]),
		Flags:         le.Uint64(b[offFlags:]),
		Key:           ID(b[offKey : offKey+16]),
		Cluster:       ID(b[offCluster : offCluster+16]),
		Host:          ID(b[offHost : offHost+16]),
		LayoutOffset:  le.Uint64(b[offLayout:]),
		LayoutBytes:   le.Uint64(b[offLayoutBytes:]),
		LayoutType:    le.Uint32(b[offLayoutType:]),
		LayoutVersion: le.Uint32(b[offLayoutVersion:]),
		ScratchOffset: le.Uint64(b[offScratch:]),
		ScratchBytes:  le.Uint64(b[offScratchBytes:]),
	}
	return h, h.check(availableBytes)
}

func (h *Header) check(availableBytes uint64) error {
	switch {
	case h.Flags&^flagsKnown != 0:
		return fmt.Errorf("unknown flags in the header: %#x", h.Flags)
	case h.SizeBytes > availableBytes:
		return fmt.Errorf("the header says %d bytes, but there are %d", h.SizeBytes, availableBytes)
	case h.SizeBytes < MinBytes || h.SizeBytes > MaxBytes:
		return fmt.Errorf("the region's size in the header, %d bytes, is out of range", h.SizeBytes)
	case !areaOK(h.LayoutOffset, h.LayoutBytes, h.SizeBytes):
		return errors.New("the layout area is not inside the region")
	case !areaOK(h.ScratchOffset, h.ScratchBytes, h.SizeBytes):
		return errors.New("the scratch area is not inside the region")
	case h.LayoutOffset < h.ScratchOffset+h.ScratchBytes && h.ScratchOffset < h.LayoutOffset+h.LayoutBytes:
		return errors.New("the layout and scratch areas overlap")
	}
	return nil
}

// areaOK reports whether [offset, offset+n) starts after the header, ends inside a region of size bytes, and is aligned
// to pages.
func areaOK(offset, n, size uint64) bool {
	return offset >= HeaderBytes && offset <= size && n <= size-offset && offset%4096 == 0 && n%4096 == 0
}

// scratchBytes returns the size in bytes of the test programs' area in a region of size bytes.
func scratchBytes(size uint64) uint64 { return min(size/4, 4<<20) &^ 4095 }
