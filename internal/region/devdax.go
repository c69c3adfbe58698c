package region

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
)

// The info block because of which a Linux guest offers a persistent-memory device as /dev/dax0.0, in the format that
// `ndctl create-namespace --mode=devdax --map=mem` writes: struct nd_pfn_sb of drivers/nvdimm/pfn.h.
const (
	infoOffset = 4096 // of the info block in the device, bytes
	infoBytes  = 4096
	infoMagic  = "NVDIMM_DAX_INFO"

	infoUUID       = 16
	infoParentUUID = 32 // zeros: the namespace has no label
	infoMajor      = 52 // u16
	infoMinor      = 54 // u16
	infoDataOffset = 56 // u64
	infoPages      = 64 // u64
	infoMode       = 72 // u32
	infoAlign      = 84 // u32
	infoPageSize   = 88 // u32
	infoPageStruct = 92 // u16
	infoChecksum   = infoBytes - 8

	modeRAM = 1 // PFN_MODE_RAM: struct pages are kept in the guest's ordinary memory
)

// FormatDevdax writes an info block into f, of fileBytes. A guest that has the file as the memory of an nvdimm or
// virtio-pmem-pci device then offers it as /dev/dax0.0, from DevdaxOffset on. The rest of the file is unchanged.
func FormatDevdax(f *os.File, fileBytes uint64) error {
	if fileBytes < 2*DevdaxOffset || fileBytes%DevdaxOffset != 0 {
		return fmt.Errorf("region: %d bytes cannot be a devdax device: a multiple of %d, at least %d", fileBytes, DevdaxOffset, 2*DevdaxOffset)
	}
	var id ID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	return writeMapped(f, devdaxInfo(id, fileBytes), infoOffset)
}

// devdaxInfo returns the info block of a device of deviceBytes.
func devdaxInfo(id ID, deviceBytes uint64) []byte {
	b := make([]byte, infoBytes)
	le := binary.LittleEndian
	copy(b, infoMagic)
	copy(b[infoUUID:], id[:])
	b[infoUUID+6] = b[infoUUID+6]&0x0f | 0x40 // version 4, random (RFC 9562)
	b[infoUUID+8] = b[infoUUID+8]&0x3f | 0x80
	le.PutUint16(b[infoMajor:], 1)
	le.PutUint16(b[infoMinor:], 4)
	le.PutUint64(b[infoDataOffset:], DevdaxOffset)
	le.PutUint64(b[infoPages:], (deviceBytes-DevdaxOffset)/4096)
	le.PutUint32(b[infoMode:], modeRAM)
	le.PutUint32(b[infoAlign:], DevdaxOffset)
	le.PutUint32(b[infoPageSize:], 4096)
	le.PutUint16(b[infoPageStruct:], 64)
	le.PutUint64(b[infoChecksum:], fletcher64(b))
	return b
}

// fletcher64 returns the checksum of an info block whose checksum field is zero: two running sums over its
// little-endian 32-bit words (nd_fletcher64 in drivers/nvdimm).
func fletcher64(b []byte) uint64 {
	var lo uint32
	var hi uint64
	for ; len(b) >= 4; b = b[4:] {
		lo += binary.LittleEndian.Uint32(b)
		hi += uint64(lo)
	}
	return hi<<32 | uint64(lo)
}
