package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// bzImageOf builds a bzImage around a payload.
func bzImageOf(payload []byte) []byte {
	const setup = 2
	b := make([]byte, (setup+1)*512+64)
	b[bzSetupSects] = setup
	copy(b[bzMagic:], "HdrS")
	le := binary.LittleEndian
	le.PutUint16(b[bzProtocol:], 0x20f)
	le.PutUint16(b[bzVersionAt:], 0x100)
	copy(b[0x300:], "6.9.0-test (me@here) #1 SMP\x00")
	le.PutUint32(b[bzPayloadOffset:], 64)
	le.PutUint32(b[bzPayloadLength:], uint32(len(payload)))
	return append(append(b, payload...), make([]byte, 100)...)
}

func withSize(b []byte, n int) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), uint32(n))
}

// TestCompressions extracts the real kernel's ELF image from every compression that a distribution uses.
func TestCompressions(t *testing.T) {
	k := kernels(t)[0]
	img, err := Open(request(t, k))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	image, err := io.ReadAll(img.KernelFile())
	if err != nil {
		t.Fatal(err)
	}
	image = image[:len(image)/4] // enough for more than one block of each

	var gz, zs, lz bytes.Buffer
	g, _ := gzip.NewWriterLevel(&gz, gzip.BestSpeed)
	g.Write(image)
	g.Close()
	z, _ := zstd.NewWriter(&zs, zstd.WithEncoderLevel(zstd.SpeedFastest))
	z.Write(image)
	z.Close()
	l := lz4.NewWriter(&lz)
	if err := l.Apply(lz4.LegacyOption(true)); err != nil {
		t.Fatal(err)
	}
	l.Write(image)
	l.Close()

	n := len(image)
	for _, tt := range []struct {
		c       compression
		payload []byte
	}{
		{compGzip, gz.Bytes()},
		{compZstd, withSize(zs.Bytes(), n)},
		{compLZ4, withSize(lz.Bytes(), n)},
		{compNone, image},
	} {
		t.Run("as "+string(tt.c), func(t *testing.T) {
			if got := compressionOf(tt.payload); got != tt.c {
				t.Errorf("taken for %q", got)
			}
			got, err := vmlinux(bzImageOf(tt.payload))
			if err != nil || !bytes.Equal(got, image) {
				t.Errorf("%d bytes, %v; want %d", len(got), err, n)
			}
		})
	}
	// A payload that unpacks to more than its stated size is rejected.
	if _, err := vmlinux(bzImageOf(withSize(zs.Bytes(), 1000))); err == nil {
		t.Error("a payload larger than stated: no error")
	}
}

func TestBadBzImages(t *testing.T) {
	good := bzImageOf([]byte("\x7fELF"))
	old := bytes.Clone(good)
	old[bzProtocol] = 4
	outside := bytes.Clone(good)
	outside[bzPayloadLength+2] = 0xff
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "not a Linux bzImage"},
		{"text", bytes.Repeat([]byte("text "), 1000), "not a Linux bzImage"},
		{"old protocol", old, "older than 2.08"},
		{"outside", outside, "lies outside"},
		{"no payload", bzImageOf(nil), "lies outside"},
		{"unknown compression", bzImageOf([]byte("unknown compression")), "unknown compression"},
		{"broken xz", bzImageOf([]byte("\xfd7zXZ\x00 and no more")), "xz: "},
		{"broken zstd", bzImageOf([]byte("\x28\xb5\x2f\xfd and no more")), "payload: "},
		{"broken lz4", bzImageOf([]byte("\x02\x21\x4c\x18 and no more")), "payload: "},
		{"broken gzip", bzImageOf([]byte("\x1f\x8b and no more")), "gzip: "},
	} {
		if _, err := vmlinux(tt.b); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzVmlinux(f *testing.F) {
	f.Add(bzImageOf([]byte("\x7fELF\x02\x01\x01")))
	for _, m := range []string{"\x1f\x8b\x08\x00", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "\x02\x21\x4c\x18", "BZh9"} {
		f.Add(bzImageOf([]byte(m + "and so on and on and on")))
	}
	for _, ext := range []string{".xz", ".zst"} {
		if b, err := os.ReadFile("testdata/module.ko" + ext); err == nil {
			f.Add(bzImageOf(withSize(b, 36)))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		versionIn(b)
		p, err := payload(b)
		if err != nil {
			return
		}
		// The bound of vmlinux is for kernels; the fuzzer uses a smaller one to find faults.
		if out, err := unpack(p, 1<<20); err == nil && len(out) > max(1<<20, len(p)) {
			t.Fatalf("%d bytes", len(out))
		}
		hasPVH(p)
		compactELF(p)
	})
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x08\x00\x00\x00\x12\x00\x00\x00Xen\x00abcdefgh"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x12\x00\x00\x00Xen\x00"))
	f.Fuzz(func(t *testing.T, b []byte) { noteIn(b, "Xen\x00", xenPhys32Entry) })
}

func TestNote(t *testing.T) {
	xen := []byte("\x04\x00\x00\x00\x08\x00\x00\x00\x12\x00\x00\x00Xen\x00abcdefgh")
	gnu := []byte("\x04\x00\x00\x00\x03\x00\x00\x00\x03\x00\x00\x00GNU\x00abc\x00")
	if !noteIn(append(gnu, xen...), "Xen\x00", xenPhys32Entry) {
		t.Error("the second note is not found")
	}
	if noteIn(gnu, "Xen\x00", xenPhys32Entry) || noteIn(xen[:20], "Xen\x00", xenPhys32Entry) {
		t.Error("found where it is not")
	}
}

func TestVersion(t *testing.T) {
	p := filepath.Join(t.TempDir(), "bz")
	os.WriteFile(p, bzImageOf(nil), 0o600)
	if v, err := bzVersion(p); err != nil || v != "6.9.0-test" {
		t.Errorf("%q, %v", v, err)
	}
}

// TestCompact compares the loaded parts of the real kernel's image before and after compactELF.
func TestCompact(t *testing.T) {
	k := kernels(t)[0]
	bz, err := os.ReadFile(k.Path)
	if err != nil {
		t.Fatal(err)
	}
	image, err := vmlinux(bz)
	if err != nil {
		t.Fatal(err)
	}
	small, err := compactELF(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB of %d", len(small)>>20, len(image)>>20)
	if !hasPVH(small) {
		t.Error("the PVH note is gone")
	}
	was, now := loaded(t, image), loaded(t, small)
	if len(was) == 0 || len(was) != len(now) {
		t.Fatalf("%d segments, then %d", len(was), len(now))
	}
	for addr, mem := range was {
		if !bytes.Equal(mem, now[addr]) {
			t.Errorf("what is loaded at %#x differs", addr)
		}
	}
}

// loaded returns the memory that an image fills, by physical address.
func loaded(t *testing.T, image []byte) map[uint64][]byte {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	m := map[uint64][]byte{}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			mem := make([]byte, p.Memsz)
			if _, err := io.ReadFull(p.Open(), mem[:p.Filesz]); err != nil {
				t.Fatal(err)
			}
			m[p.Paddr] = mem
		}
	}
	return m
}

// elfOf builds an image with one segment.
func elfOf(p elf.ProgHeader, data []byte) []byte {
	b := append(elfHeaders(0x1000, []elf.ProgHeader{p}, elfHeader+progHeader), data...)
	return b
}

func TestBadELF(t *testing.T) {
	const at = elfHeader + progHeader
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"cut", []byte("\x7fELF\x02\x01\x01"), "EOF"},
		{"outside", elfOf(elf.ProgHeader{Type: elf.PT_LOAD, Off: at, Filesz: 5000, Memsz: 5000}, make([]byte, 10)), "outside of the file"},
		{"memory smaller", elfOf(elf.ProgHeader{Type: elf.PT_LOAD, Off: at, Filesz: 5, Memsz: 4}, make([]byte, 10)), "outside of the file"},
		{"nothing loaded", elfOf(elf.ProgHeader{Type: elf.PT_NULL}, nil), "0 segments"},
	} {
		if _, err := compactELF(tt.b); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzCompactELF(f *testing.F) {
	const at = elfHeader + progHeader
	f.Add(elfOf(elf.ProgHeader{Type: elf.PT_LOAD, Off: at, Filesz: 4, Memsz: 8}, []byte("abc\x00")))
	f.Add(elfOf(elf.ProgHeader{Type: elf.PT_NOTE, Off: at, Filesz: 1 << 40, Memsz: 1 << 41}, []byte("abc\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		small, err := compactELF(b)
		if err != nil {
			return
		}
		if _, err := compactELF(small); err != nil {
			t.Fatalf("what it made is not an image to it: %v", err)
		}
	})
}
