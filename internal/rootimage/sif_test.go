package rootimage

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sifFile returns the file that siftool 2.25.0, of the Apptainer project, made of the tree of these tests:
//
//	mksquashfs tree t.sqfs -all-root
//	siftool new t.sif
//	siftool add --datatype 1 t.sif def
//	siftool add --datatype 4 --partfs 1 --parttype 2 --partarch 2 t.sif t.sqfs
func sifFile(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open("testdata/siftool.sif.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSIF: a SIF's system is unpacked.
func TestSIF(t *testing.T) {
	needs(t, "unsquashfs")
	path := filepath.Join(t.TempDir(), "root.sif")
	if err := os.WriteFile(path, sifFile(t), 0o644); err != nil {
		t.Fatal(err)
	}
	unpacked(t, at(t), path, SIF)
}

// TestSIFRefused: a damaged SIF, or one without a system that can be unpacked, is rejected in one line.
func TestSIFRefused(t *testing.T) {
	whole := sifFile(t)
	const total, offset = 88, 96 // in the header
	second := int(binary.LittleEndian.Uint64(whole[offset:])) + binary.Size(sifDescriptor{})
	const used, start, size, fileSystem, purpose, arch = 4, 17, 25, 201, 205, 209 // in a descriptor
	long := func(b []byte, at int, v int64) { binary.LittleEndian.PutUint64(b[at:], uint64(v)) }
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"a header cut off":               {func(b []byte) []byte { return b[:100] }, "within its header"},
		"another version":                {func(b []byte) []byte { b[43] = '2'; return b }, "version"},
		"no descriptor":                  {func(b []byte) []byte { long(b, total, 0); return b }, "no system"},
		"descriptors below 0":            {func(b []byte) []byte { long(b, total, -1); return b }, "claims -1"},
		"too many descriptors":           {func(b []byte) []byte { long(b, total, 1<<40); return b }, "claims 1099511627776"},
		"descriptors beyond":             {func(b []byte) []byte { long(b, offset, 1<<60); return b }, "beyond its end"},
		"descriptors before":             {func(b []byte) []byte { long(b, offset, -8); return b }, "beyond its end"},
		"descriptors cut off":            {func(b []byte) []byte { return b[:second+100] }, "within its descriptors"},
		"an unused descriptor":           {func(b []byte) []byte { b[second+used] = 0; return b }, "no system"},
		"a system of data":               {func(b []byte) []byte { b[second+purpose] = 3; return b }, "no system"},
		"an ext3":                        {func(b []byte) []byte { b[second+fileSystem] = 2; return b }, "apptainer build --sandbox"},
		"encrypted":                      {func(b []byte) []byte { b[second+fileSystem] = 5; return b }, "encrypted"},
		"another processor":              {func(b []byte) []byte { b[second+arch+1] = '3'; return b }, "not for x86-64"},
		"a system before":                {func(b []byte) []byte { long(b, second+start, -4096); return b }, "beyond its end"},
		"a system beyond":                {func(b []byte) []byte { long(b, second+start, 1<<40); return b }, "beyond its end"},
		"a system without length":        {func(b []byte) []byte { long(b, second+size, 0); return b }, "beyond its end"},
		"a system that is longer":        {func(b []byte) []byte { long(b, second+size, 1<<62); return b }, "beyond its end"},
		"no squashfs where it should be": {func(b []byte) []byte { long(b, second+start, 4096); return b }, "unsquashfs"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "root.sif")
			if err := os.WriteFile(path, c.change(bytes.Clone(whole)), 0o644); err != nil {
				t.Fatal(err)
			}
			i, err := Find(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "unsquashfs" {
				needs(t, "unsquashfs")
			}
			d := at(t)
			if dir, err := i.Unpack(context.Background(), d, func(string) {}); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, %v, not %q", dir, err, c.want)
			}
			if list, _ := os.ReadDir(d.Path()); len(list) != 0 {
				t.Errorf("left in the cache: %v", list)
			}
		})
	}
}
