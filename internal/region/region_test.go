package region

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t testing.TB, o Options) *Region {
	t.Helper()
	r, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestCreate(t *testing.T) {
	id := ID{1, 2, 3}
	r := create(t, Options{SizeBytes: 4 << 20, HostNode: -1, Cluster: id})
	var st unix.Stat_t
	if err := unix.Fstat(int(r.File.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != 4<<20 || st.Blocks*512 < 4<<20 || st.Mode&0o777 != 0o600 || st.Nlink != 0 {
		t.Errorf("size %d, blocks %d, mode %o, links %d", st.Size, st.Blocks, st.Mode, st.Nlink)
	}
	h, off, err := Read(r.File, 4<<20)
	if err != nil || off != 0 || h != r.Header {
		t.Fatalf("read back: %+v at %d, %v; want %+v", h, off, err, r.Header)
	}
	if h.Cluster != id || h.Key == (ID{}) || h.LayoutBytes+h.ScratchBytes+HeaderBytes != 4<<20 {
		t.Errorf("%+v", h)
	}
	if want, _ := HostID(h.Key); h.Host != want || want == (ID{}) {
		t.Errorf("host id %x, want %x", h.Host, want)
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil {
		b, _ := io.ReadAll(io.NewSectionReader(r.File, 0, 4<<20))
		if bytes.Contains(b, bytes.TrimSpace(id)) {
			t.Error("the raw machine-id stands in the region")
		}
	}
	// The path by which QEMU opens the file.
	if f, err := os.OpenFile("/proc/self/fd/"+itoa(r.File.Fd()), os.O_RDWR, 0); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if other := create(t, Options{SizeBytes: 1 << 20, HostNode: -1}); other.Header.Key == r.Header.Key || other.Header.Host == r.Header.Host || other.Header.Cluster == (ID{}) {
		t.Error("two regions have the same key or host id")
	}
}

func itoa(fd uintptr) string {
	var b []byte
	for ; fd > 0 || b == nil; fd /= 10 {
		b = append([]byte{byte('0' + fd%10)}, b...)
	}
	return string(b)
}

func TestScrub(t *testing.T) {
	r := create(t, Options{SizeBytes: 2 << 20, HostNode: -1})
	mem, err := unix.Mmap(int(r.File.Fd()), 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem {
		mem[i] = 0xff
	}
	if err := r.Scrub(); err != nil {
		t.Fatal(err)
	}
	for i, b := range mem {
		if b != 0 {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
	if st, _ := r.File.Stat(); st.Size() != 2<<20 {
		t.Errorf("the file has %d bytes", st.Size())
	}
}

// Without O_TMPFILE the name is also gone at once.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	f, err := named(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("left in the directory: %v", e)
	}
	if st, _ := f.Stat(); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", st.Mode().Perm())
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{SizeBytes: 3 << 20, HostNode: -1}, "power of two"},
		{Options{SizeBytes: 0, HostNode: -1}, "power of two"},
		{Options{SizeBytes: 1 << 19, HostNode: -1}, "below the least"},
		{Options{SizeBytes: 1 << 47, HostNode: -1}, "above the most"},
		{Options{SizeBytes: 1 << 46, HostNode: -1}, "free"},
		{Options{SizeBytes: 2 << 20, HostNode: -1, Devdax: true}, "devdax"},
		{Options{SizeBytes: 1 << 20, HostNode: -2}, "NUMA node"},
		{Options{SizeBytes: 1 << 20, HostNode: 1024}, "NUMA node"},
		{Options{SizeBytes: 1 << 20, HostNode: 1023}, "NUMA node 1023"},
		{Options{SizeBytes: 1 << 20, HostNode: -1, Backing: "disk"}, "shm or hugetlb"},
		{Options{SizeBytes: 1 << 20, HostNode: -1, HugePageBytes: 2 << 20}, "hugetlb"},
		{Options{SizeBytes: 1 << 20, HostNode: -1, Dir: "/nonexistent"}, "/nonexistent"},
		{Options{SizeBytes: 4 << 20, HostNode: -1, Backing: "hugetlb", HugePageBytes: 3}, "huge pages of 3"},
		{Options{SizeBytes: 4 << 20, HostNode: -1, Backing: "hugetlb", Dir: "/tmp"}, "not a hugetlbfs mount"},
	} {
		r, err := Create(c.o)
		if err == nil {
			r.Close()
			t.Errorf("%+v was taken", c.o)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v; want a line with %q", c.o, err, c.want)
		}
	}
}

func TestHostNode(t *testing.T) {
	r := create(t, Options{SizeBytes: 1 << 20, HostNode: 0})
	if _, _, err := Read(r.File, 1<<20); err != nil {
		t.Error(err)
	}
}

// inNewMounts runs this test again as root in a mount namespace, after the shell commands setup. Without the right to
// make one the test fails in CI and is skipped elsewhere. inNewMounts reports whether this is the second run.
func inNewMounts(t *testing.T, setup string) bool {
	t.Helper()
	if os.Getenv("NEARMETAL_TEST_MOUNTS") == t.Name() {
		return true
	}
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs root and mount namespaces: %v", err)
		}
		t.Skipf("needs root and mount namespaces: %v", err)
	}
	cmd := exec.Command("unshare", "-m", "sh", "-ec", setup+"\nexec \"$0\" \"$@\"", os.Args[0],
		"-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "NEARMETAL_TEST_MOUNTS="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// A full /dev/shm is reported at once, and nothing of the failed region stays.
func TestFullShm(t *testing.T) {
	if !inNewMounts(t, "mount -t tmpfs -o size=6m none /dev/shm") {
		return
	}
	r, err := Create(Options{SizeBytes: 8 << 20, HostNode: -1})
	if err == nil {
		r.Close()
		t.Fatal("8 MiB fit into 6")
	}
	for _, want := range []string{"/dev/shm", "no room", "8388608"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
	}
	create(t, Options{SizeBytes: 4 << 20, HostNode: -1})
}

func TestHugetlb(t *testing.T) {
	if !inNewMounts(t, "mount -t tmpfs none /mnt && mkdir /mnt/huge && mount -t hugetlbfs -o pagesize=2M none /mnt/huge") {
		return
	}
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	old, err := os.ReadFile(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(pool, old, 0)
	o := Options{SizeBytes: 4 << 20, Backing: "hugetlb", HugePageBytes: 2 << 20, HostNode: -1}
	if n, _ := readCount(pool); n == 0 {
		if _, err := Create(o); err == nil || !strings.Contains(err.Error(), "sysctl vm.nr_hugepages=2") {
			t.Errorf("with no huge pages: %v", err)
		}
	}
	n, _ := readCount(pool)
	os.WriteFile(pool, []byte(itoa(uintptr(n+4))), 0)
	if got, _ := readCount(pool); got < n+4 {
		t.Fatalf("the kernel made %d huge pages of %d", got, n+4)
	}
	for _, devdax := range []bool{false, true} {
		o.Devdax = devdax
		r := create(t, o)
		h, off, err := Read(mapped(t, r), 4<<20)
		if err != nil || h != r.Header || off != r.Offset || h.Flags&FlagHugetlb == 0 {
			t.Errorf("read back: %+v at %d, %v", h, off, err)
		}
		if err := r.Scrub(); err != nil {
			t.Error(err)
		}
		r.Close()
	}
	o.SizeBytes = 1 << 20
	if _, err := Create(o); err == nil {
		t.Error("1 MiB was made of 2 MiB pages")
	}
}

// mapped returns the region's memory as a reader, because read(2) does not work on every hugetlbfs.
func mapped(t *testing.T, r *Region) *bytes.Reader {
	t.Helper()
	st, _ := r.File.Stat()
	mem, err := unix.Mmap(int(r.File.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return bytes.NewReader(mem)
}

func TestMounts(t *testing.T) {
	got := hugetlbDirs("none /dev/hugepages hugetlbfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nnone /mnt/a\\040b hugetlbfs rw 0 0\n\nx\n")
	if strings.Join(got, "|") != "/dev/hugepages|/mnt/a b" {
		t.Errorf("%q", got)
	}
}

func TestDevdax(t *testing.T) {
	r := create(t, Options{SizeBytes: 8 << 20, HostNode: -1, Devdax: true})
	h, off, err := Read(r.File, 8<<20)
	if err != nil || off != DevdaxOffset || h.SizeBytes != 6<<20 || h.Flags != FlagDevdax {
		t.Errorf("%+v at %d, %v", h, off, err)
	}
	b := make([]byte, infoBytes)
	if _, err := r.File.ReadAt(b, infoOffset); err != nil {
		t.Fatal(err)
	}
	sum := binary.LittleEndian.Uint64(b[infoChecksum:])
	clear(b[infoChecksum:])
	if string(b[:16]) != "NVDIMM_DAX_INFO\x00" || sum != fletcher64(b) {
		t.Errorf("info block %x, checksum %x", b[:96], sum)
	}
	f, err := nameless(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []uint64{0, 2 << 20, 5 << 20} {
		if err := FormatDevdax(f, n); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
}

// sound returns a header that is parsed without an error.
func sound() Header {
	return Header{SizeBytes: 4 << 20, Key: ID{1}, Cluster: ID{2}, Host: ID{3}, LayoutOffset: 4096, LayoutBytes: 3 << 20,
		LayoutType: 7, LayoutVersion: 8, ScratchOffset: 3<<20 + 4096, ScratchBytes: 1<<20 - 4096}
}

func TestParseHeader(t *testing.T) {
	h := sound()
	if got, err := ParseHeader(h.marshal(), 4<<20); err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, c := range map[string]func(h *Header){
		"size above":         func(h *Header) { h.SizeBytes = 4<<20 + 4096 },
		"size below":         func(h *Header) { h.SizeBytes = 4096 },
		"flags":              func(h *Header) { h.Flags = 1 << 63 },
		"layout on header":   func(h *Header) { h.LayoutOffset = 0 },
		"layout overflows":   func(h *Header) { h.LayoutBytes = ^uint64(4095) },
		"layout offset":      func(h *Header) { h.LayoutOffset = ^uint64(4095) },
		"layout not on page": func(h *Header) { h.LayoutOffset = 4097 },
		"scratch outside":    func(h *Header) { h.ScratchBytes = 1 << 20 },
		"areas overlap":      func(h *Header) { h.LayoutBytes = 3<<20 + 4096 },
	} {
		h := sound()
		c(&h)
		if _, err := ParseHeader(h.marshal(), 4<<20); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for i := range HeaderBytes {
		b := h.marshal()
		b[i] ^= 1
		if _, err := ParseHeader(b, 4<<20); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
	}
	if _, err := ParseHeader(nil, 4<<20); err == nil {
		t.Error("nothing: no error")
	}
	for _, f := range []io.ReaderAt{bytes.NewReader(nil), bytes.NewReader(make([]byte, 4<<20))} {
		if _, _, err := Read(f, 4<<20); err == nil {
			t.Error("no header: no error")
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	h := sound()
	f.Add(h.marshal()[:128], uint64(4<<20))
	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		page := make([]byte, HeaderBytes)
		copy(page, b)
		// With a right checksum, so that the checks after it are reached.
		binary.LittleEndian.PutUint32(page[offCRC:], crc32c(page[:offCRC]))
		h, err := ParseHeader(page, size)
		if err != nil {
			return
		}
		for _, a := range [][2]uint64{{h.LayoutOffset, h.LayoutBytes}, {h.ScratchOffset, h.ScratchBytes}} {
			if end := a[0] + a[1]; a[0] < HeaderBytes || end < a[0] || end > h.SizeBytes || h.SizeBytes > size {
				t.Fatalf("%+v of %d bytes was taken", h, size)
			}
		}
	})
}
