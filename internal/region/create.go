package region

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxNode is the largest NUMA node number that Linux can have (NODES_SHIFT is 10 at most).
const maxNode = 1023

// allocStep is how many bytes one fallocate allocates. With small steps an interrupting signal undoes little.
const allocStep = 64 << 20

// Create makes a region: it allocates and zeroes all the memory on the requested node, and writes the header. The error
// names the resource that is short and a remedy.
func Create(o Options) (*Region, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir := o.Dir
	var flags uint64
	if o.Backing == "hugetlb" {
		flags |= FlagHugetlb
		m, err := hugetlbMount(o)
		if err != nil {
			return nil, err
		}
		dir = m.dir
		if err := m.checkFree(o.SizeBytes); err != nil {
			return nil, err
		}
	} else {
		if dir == "" {
			dir = "/dev/shm"
		}
		if err := checkMemory(o); err != nil {
			return nil, err
		}
	}
	f, err := nameless(dir)
	if err != nil {
		return nil, err
	}
	r := &Region{File: f}
	if err := r.fill(o, dir); err != nil {
		f.Close()
		return nil, err
	}
	if err := r.format(o, flags); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// nameless opens a new file in dir, mode 0600, that has no name.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir+"/(region)"), nil
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR && err != unix.EINVAL {
		return nil, fmt.Errorf("region: cannot make a file in %s: %w", dir, err)
	}
	return named(dir)
}

// named does the same as nameless on a file system without O_TMPFILE: the file has an unguessable name for a moment.
func named(dir string) (*os.File, error) {
	var id ID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	path := dir + "/nearmetal-" + hex.EncodeToString(id[:])
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("region: cannot make a file in %s: %w", dir, err)
	}
	if err := unix.Unlink(path); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("region: cannot unlink %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), dir+"/(region)"), nil
}

// fill sets the file's size and allocates its memory.
func (r *Region) fill(o Options, dir string) error {
	// Beyond the limit the kernel sends SIGXFSZ, which would end nearmetal.
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err == nil && lim.Cur < o.SizeBytes {
		return fmt.Errorf("region: %d bytes are more than the limit on file size, %d (ulimit -f)", o.SizeBytes, lim.Cur)
	}
	fd := int(r.File.Fd())
	// Fd() makes the descriptor blocking, which has no effect on a file in memory.
	if err := unix.Ftruncate(fd, int64(o.SizeBytes)); err != nil {
		return fmt.Errorf("region: cannot make a file of %d bytes in %s: %w", o.SizeBytes, dir, err)
	}
	if o.HostNode >= 0 {
		if err := bind(fd, o.SizeBytes, o.HostNode); err != nil {
			return err
		}
	}
	for off := uint64(0); off < o.SizeBytes; {
		n := min(allocStep, o.SizeBytes-off)
		if o.Backing == "hugetlb" {
			n = o.SizeBytes // whole pages, and the pool was checked
		}
		err := unix.Fallocate(fd, 0, int64(off), int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return shortage(o, dir, err)
		}
		off += n
	}
	return nil
}

func shortage(o Options, dir string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("region: cannot take %d bytes in %s: %w", o.SizeBytes, dir, err)
	}
	if o.Backing == "hugetlb" {
		return fmt.Errorf("region: no %d bytes of huge pages are free in %s%s; make more with sysctl vm.nr_hugepages=N",
			o.SizeBytes, dir, onNode(o.HostNode))
	}
	free := ""
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil {
		free = fmt.Sprintf(" (%d bytes were free)", st.Bavail*uint64(st.Bsize))
	}
	return fmt.Errorf("region: %s has no room for %d bytes%s; remove files there, make it larger (mount -o remount,size=… %s), or ask for a smaller region",
		dir, o.SizeBytes, free, dir)
}

func onNode(n int) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf(" on NUMA node %d", n)
}

// bind puts the file's pages on one NUMA node. The policy of a shared mapping belongs to the file (mbind(2)), so the
// mapping lasts only for the call.
func bind(fd int, size uint64, node int) error {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("region: cannot map %d bytes: %w", size, err)
	}
	defer unix.Munmap(mem)
	const mpolBind = 2 // MPOL_BIND, linux/mempolicy.h
	var mask [(maxNode + 1) / 64]uint64
	mask[node/64] = 1 << (node % 64)
	// maxnode counts one bit more than the kernel uses.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(size), mpolBind,
		uintptr(unsafe.Pointer(&mask[0])), maxNode+2, 0)
	if errno == unix.ENOSYS && node == 0 {
		return nil // a kernel without NUMA has one node
	}
	if errno != 0 {
		return fmt.Errorf("region: cannot put its memory on NUMA node %d: %w", node, errno)
	}
	return nil
}

// checkMemory returns an error if there is not enough memory for a region. The kernel would kill a process to make
// room, whereas the caller can still choose another size.
func checkMemory(o Options) error {
	file, key := "/proc/meminfo", "MemAvailable:"
	if o.HostNode >= 0 {
		file, key = fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", o.HostNode), "MemFree:"
	}
	m, err := meminfo(file)
	if err != nil {
		if o.HostNode > 0 && os.IsNotExist(err) {
			return fmt.Errorf("region: this host has no NUMA node %d", o.HostNode)
		}
		return nil // no such file: fallocate will report a shortage
	}
	free := m[key]
	if o.HostNode >= 0 {
		free += m["Inactive(file):"] // can be freed at once
	}
	if o.SizeBytes > free {
		return fmt.Errorf("region: %d bytes of memory are asked for%s, but only %d are free", o.SizeBytes, onNode(o.HostNode), free)
	}
	return nil
}

// meminfo reads a meminfo file and returns the bytes for each key. In a node's file the lines start with "Node N".
func meminfo(path string) (map[string]uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := map[string]uint64{}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "Node" {
			f = f[2:]
		}
		if len(f) >= 2 {
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				m[f[0]] = n << 10
			}
		}
	}
	return m, nil
}

// format writes the beginning of a region: the header.
func (r *Region) format(o Options, flags uint64) error {
	h := Header{SizeBytes: o.SizeBytes, Flags: flags, Cluster: o.Cluster}
	if o.Devdax {
		r.Offset = DevdaxOffset
		h.SizeBytes -= DevdaxOffset
		h.Flags |= FlagDevdax
		if err := FormatDevdax(r.File, o.SizeBytes); err != nil {
			return err
		}
	}
	if _, err := rand.Read(h.Key[:]); err != nil {
		return err
	}
	if h.Cluster == (ID{}) {
		if _, err := rand.Read(h.Cluster[:]); err != nil {
			return err
		}
	}
	var err error
	if h.Host, err = HostID(h.Key); err != nil {
		return err
	}
	h.ScratchBytes = scratchBytes(h.SizeBytes)
	h.ScratchOffset = h.SizeBytes - h.ScratchBytes
	h.LayoutOffset = HeaderBytes
	h.LayoutBytes = h.ScratchOffset - h.LayoutOffset
	h.LayoutType = LayoutNone
	if err := r.write(h.marshal(), r.Offset); err != nil {
		return err
	}
	r.Header = h
	return nil
}

// write writes b at off. It uses a mapping, because hugetlbfs has no write(2).
func (r *Region) write(b []byte, off int64) error { return writeMapped(r.File, b, off) }

func writeMapped(f *os.File, b []byte, off int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("region: cannot map it: %w", err)
	}
	copy(mem[off:], b)
	return unix.Munmap(mem)
}

// Scrub frees all the region's memory, header included. Any process that has the file mapped, or maps it later, reads
// zeros. The file keeps its size.
func (r *Region) Scrub() error {
	st, err := r.File.Stat()
	if err != nil {
		return err
	}
	for {
		err := unix.Fallocate(int(r.File.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
		if err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("region: cannot zero it: %w", err)
			}
			return nil
		}
	}
}

// HostID returns this host's id under a region's key. The id is equal for all processes on one installation, and does
// not reveal the machine-id, which machine-id(5) requires to be hashed before it is shown. Without a machine-id it is
// made from the boot's id.
func HostID(key ID) (ID, error) {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		line, _ := bufio.NewReader(io.LimitReader(f, 128)).ReadString('\n')
		f.Close()
		line = strings.ReplaceAll(strings.TrimSpace(line), "-", "")
		id, err := hex.DecodeString(line)
		if err != nil || len(id) != 16 {
			continue // empty, or "uninitialized" in an image
		}
		mac := hmac.New(sha256.New, id)
		mac.Write(key[:])
		return ID(mac.Sum(nil)[:16]), nil
	}
	return ID{}, errors.New("region: this host has neither a machine-id nor a boot id")
}
