package rootimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// sifHeader is the start of a SIF file, version 01. All of its numbers are little-endian.
type sifHeader struct {
	Launch            [32]byte
	Magic             [10]byte
	Version           [3]byte
	Arch              [3]byte
	ID                [16]byte
	Created           int64
	Modified          int64
	DescriptorsFree   int64
	DescriptorsTotal  int64
	DescriptorsOffset int64
	DescriptorsSize   int64
	DataOffset        int64
	DataSize          int64
}

// sifDescriptor describes an object in a SIF file.
type sifDescriptor struct {
	DataType        int32
	Used            bool
	ID, Group, Link uint32
	Offset          int64
	Size            int64
	SizeWithPadding int64
	Created         int64
	Modified        int64
	UID, GID        int64
	Name            [128]byte
	// For a partition: its file system, its purpose, and the type of processor.
	FileSystem int32
	Purpose    int32
	Arch       [3]byte
	_          [373]byte
}

const (
	sifMagic = "SIF_MAGIC"
	sifAMD64 = "02\x00"

	sifPartition     = 0x4004
	sifPrimarySystem = 2
	sifSquashfs      = 1
	sifEncrypted     = 5

	mostSIFDescriptors = 4096 // Apptainer makes 48
)

// sifRoot returns the offset of the squashfs of a SIF file's system.
func sifRoot(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var h sifHeader
	if err := binary.Read(io.NewSectionReader(f, 0, fi.Size()), binary.LittleEndian, &h); err != nil {
		return 0, errors.New("the SIF ends within its header")
	}
	if v := string(bytes.TrimRight(h.Version[:], "\x00")); v != "01" {
		return 0, fmt.Errorf("the SIF has version %q, not 01", v)
	}
	if n := h.DescriptorsTotal; n < 0 || n > mostSIFDescriptors {
		return 0, fmt.Errorf("the SIF claims %d descriptors", n)
	}
	size := int64(binary.Size(sifDescriptor{}))
	if h.DescriptorsOffset < 0 || h.DescriptorsOffset > fi.Size() {
		return 0, errors.New("the descriptors of the SIF are beyond its end")
	}
	table := io.NewSectionReader(f, h.DescriptorsOffset, size*h.DescriptorsTotal)
	for range h.DescriptorsTotal {
		var d sifDescriptor
		if err := binary.Read(table, binary.LittleEndian, &d); err != nil {
			return 0, errors.New("the SIF ends within its descriptors")
		}
		if !d.Used || d.DataType != sifPartition || d.Purpose != sifPrimarySystem {
			continue
		}
		switch {
		case d.FileSystem == sifEncrypted:
			return 0, errors.New("the system in the SIF is encrypted")
		case d.FileSystem != sifSquashfs:
			return 0, errors.New("the system in the SIF is not squashfs: apptainer build --sandbox DIR makes a directory of it, which can be named")
		case string(d.Arch[:]) != sifAMD64:
			return 0, errors.New("the system in the SIF is not for x86-64")
		case d.Offset < 0 || d.Size <= 0 || d.Offset > fi.Size() || d.Size > fi.Size()-d.Offset:
			return 0, errors.New("the system in the SIF is beyond its end")
		}
		return d.Offset, nil
	}
	return 0, errors.New("the SIF has no system in it")
}
