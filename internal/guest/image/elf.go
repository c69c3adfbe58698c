package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	maxSegments = 64
	elfPage     = 4096
	elfHeader   = 64 // bytes of an Elf64_Ehdr
	progHeader  = 56 // bytes of an Elf64_Phdr
)

// compactELF returns a kernel image with only its loaded parts, and without the zeroes at the end of a segment: a
// kernel's last segment has its .bss in the file, 20 of Debian's 63 MiB. QEMU maps the file while the VM runs, and
// writes the zeroes itself.
func compactELF(image []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian || f.Machine != elf.EM_X86_64 {
		return nil, errors.New("not an x86-64 image")
	}
	var segments []elf.ProgHeader
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD || p.Type == elf.PT_NOTE {
			segments = append(segments, p.ProgHeader)
		}
	}
	if len(segments) == 0 || len(segments) > maxSegments {
		return nil, fmt.Errorf("%d segments", len(segments))
	}
	var data []byte // data after the headers, from the offset of base on
	base := uint64(elfHeader+progHeader*len(segments)+elfPage-1) &^ (elfPage - 1)
	for i := range segments {
		p := &segments[i]
		if p.Off > uint64(len(image)) || p.Filesz > uint64(len(image))-p.Off || p.Memsz < p.Filesz {
			return nil, fmt.Errorf("segment %d lies outside of the file", i)
		}
		part := image[p.Off : p.Off+p.Filesz]
		if p.Type == elf.PT_LOAD {
			part = bytes.TrimRight(part, "\x00")
		}
		if len(data)+len(part) > maxVmlinux {
			return nil, errors.New("segments of more bytes than the file") // they overlap repeatedly
		}
		p.Off, p.Filesz = base+uint64(len(data)), uint64(len(part))
		if p.Align > elfPage {
			p.Align = elfPage
		}
		data = append(data, part...)
		data = append(data, make([]byte, -len(data)&(elfPage-1))...)
	}
	return append(elfHeaders(f.Entry, segments, int(base)), data...), nil
}

// elfHeaders returns the file's header and the segments', padded to size bytes.
func elfHeaders(entry uint64, segments []elf.ProgHeader, size int) []byte {
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Entry: entry,
		Phoff: elfHeader, Ehsize: elfHeader, Phentsize: progHeader, Phnum: uint16(len(segments)),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var out bytes.Buffer
	binary.Write(&out, binary.LittleEndian, h)
	for _, p := range segments {
		binary.Write(&out, binary.LittleEndian, elf.Prog64{
			Type: uint32(p.Type), Flags: uint32(p.Flags), Off: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr,
			Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align,
		})
	}
	return append(out.Bytes(), make([]byte, size-out.Len())...)
}
