package image

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/therootcompany/xz"
)

// Bounds of a kernel image: distributions' are 8 to 20 MiB, and 30 to 90 MiB when unpacked.
const (
	maxBzImage = 256 << 20
	maxVmlinux = 512 << 20
)

// Offsets in a bzImage (Documentation/arch/x86/boot.rst).
const (
	bzSetupSects    = 0x1f1
	bzMagic         = 0x202 // "HdrS"
	bzProtocol      = 0x206
	bzVersionAt     = 0x20e // less 0x200: offset of the version's text
	bzPayloadOffset = 0x248 // from the start of the protected-mode code
	bzPayloadLength = 0x24c
	bzHeaderEnd     = 0x250
)

// errNotBzImage is returned for files that are not bzImages.
var errNotBzImage = errors.New("not a Linux bzImage")

// payload finds the compressed kernel in a bzImage.
func payload(bz []byte) ([]byte, error) {
	if len(bz) < bzHeaderEnd || string(bz[bzMagic:bzMagic+4]) != "HdrS" {
		return nil, errNotBzImage
	}
	if v := binary.LittleEndian.Uint16(bz[bzProtocol:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %d.%02d is older than 2.08: its payload cannot be found", v>>8, v&0xff)
	}
	setup := uint64(bz[bzSetupSects])
	if setup == 0 {
		setup = 4
	}
	start := (setup+1)*512 + uint64(binary.LittleEndian.Uint32(bz[bzPayloadOffset:]))
	end := start + uint64(binary.LittleEndian.Uint32(bz[bzPayloadLength:]))
	if start >= end || end > uint64(len(bz)) {
		return nil, fmt.Errorf("payload at %d to %d lies outside of the %d bytes of the file", start, end, len(bz))
	}
	return bz[start:end], nil
}

// compression is the compression of a kernel's payload or of a module.
type compression string

const (
	compNone    compression = ""
	compGzip    compression = "gzip"
	compXZ      compression = "xz"
	compZstd    compression = "zstd"
	compLZ4     compression = "lz4"
	compBzip2   compression = "bzip2"
	compUnknown compression = "?"
)

// compressionOf detects the compression by the first bytes.
func compressionOf(b []byte) compression {
	for _, m := range []struct {
		magic string
		c     compression
	}{
		{"\x7fELF", compNone},
		{"\x1f\x8b", compGzip},
		{"\xfd7zXZ\x00", compXZ},
		{"\x28\xb5\x2f\xfd", compZstd},
		{"\x02\x21\x4c\x18", compLZ4}, // the legacy frame, which the kernel's makefiles write
		{"BZh", compBzip2},
	} {
		if bytes.HasPrefix(b, []byte(m.magic)) {
			return m.c
		}
	}
	return compUnknown
}

// unpack decompresses ELF data. limit bounds the result, in bytes, and the decoders' windows.
func unpack(b []byte, limit int64) ([]byte, error) {
	var r io.Reader
	c := compressionOf(b)
	switch c {
	case compNone:
		return b, nil
	case compGzip:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		z.Multistream(false)
		r = z
	case compXZ:
		z, err := xz.NewReader(bytes.NewReader(b), 128<<20)
		if err != nil {
			return nil, fmt.Errorf("xz: %w", err)
		}
		z.Multistream(false)
		r = z
	case compZstd:
		z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		defer z.Close()
		r = z
	case compLZ4:
		r = lz4.NewReader(bytes.NewReader(b))
	case compBzip2:
		r = bzip2.NewReader(bytes.NewReader(b))
	default:
		return nil, fmt.Errorf("unknown compression (it starts with % x)", b[:min(len(b), 6)])
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, limit+1))
	if n > limit {
		return nil, fmt.Errorf("%s: more than %d MiB when unpacked", c, limit>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	return out.Bytes(), nil
}

// vmlinux extracts the ELF image from a bzImage.
func vmlinux(bz []byte) ([]byte, error) {
	p, err := payload(bz)
	if err != nil {
		return nil, err
	}
	limit := int64(maxVmlinux)
	// The kernel's makefiles append the unpacked size to the data, in 4 bytes; gzip already contains it.
	if c := compressionOf(p); c != compGzip && c != compNone && len(p) > 4 {
		size := int64(binary.LittleEndian.Uint32(p[len(p)-4:]))
		p, limit = p[:len(p)-4], min(limit, size)
	}
	out, err := unpack(p, limit)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if !bytes.HasPrefix(out, []byte(elf.ELFMAG)) {
		return nil, errors.New("payload: not an ELF image")
	}
	return out, nil
}

// xenPhys32Entry is the type of Xen's ELF note with the 32-bit entry of the PVH start protocol, which qboot and QEMU
// use.
const xenPhys32Entry = 18

// hasPVH reports whether an ELF image can be booted by the PVH protocol.
func hasPVH(image []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil || f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return false
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<20 || p.Off > uint64(len(image)) || p.Filesz > uint64(len(image))-p.Off {
			continue
		}
		if noteIn(image[p.Off:p.Off+p.Filesz], "Xen\x00", xenPhys32Entry) {
			return true
		}
	}
	return false
}

// noteIn reports whether a note segment has a note: name size, descriptor size, type, then name and descriptor padded
// to 4 bytes.
func noteIn(b []byte, name string, typ uint32) bool {
	le := binary.LittleEndian
	for len(b) >= 12 {
		nameLen, descLen, t := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		b = b[12:]
		desc := (nameLen + 3) &^ 3
		next := desc + (descLen+3)&^3
		if next > uint64(len(b)) {
			return false
		}
		if t == typ && string(b[:nameLen]) == name {
			return true
		}
		b = b[next:]
	}
	return false
}

// bzVersion reads a bzImage's version, the first word of its version text ("6.1.0-56-amd64 (debian-kernel@…) …").
func bzVersion(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 64<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return "", errNotBzImage
	}
	return versionIn(head[:n])
}

func versionIn(head []byte) (string, error) {
	if len(head) < bzHeaderEnd || string(head[bzMagic:bzMagic+4]) != "HdrS" {
		return "", errNotBzImage
	}
	at := 0x200 + int(binary.LittleEndian.Uint16(head[bzVersionAt:]))
	if at == 0x200 || at >= len(head) {
		return "", errors.New("the bzImage states no version")
	}
	text := head[at:min(len(head), at+200)]
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	v, _, _ := strings.Cut(string(text), " ")
	if !versionOK(v) {
		return "", fmt.Errorf("the bzImage states a strange version: %.40q", v)
	}
	return v, nil
}
