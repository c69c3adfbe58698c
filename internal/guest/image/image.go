// Package image makes what a VM is started from: the host distribution's kernel
// with its ELF image taken out, and an initramfs that holds nearmetal's agent as
// /init and the modules it must load. Both are cached, and checked at every use.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/cache"
)

// Request says what image is wanted.
type Request struct {
	Kernel  Kernel
	Files   string   // by which the guest sees files of the host: "9p" (or ""), "virtiofs"
	Devdax  bool     // the region is shown as a devdax device: its modules are needed too
	Modules []string // more modules, by name
	// Aliases are devices whose drivers are needed, as the kernel names them (modalias of sysfs).
	Aliases []string
	// Notice is called with what the user should know, a line at a time (a cache entry was corrupted and rebuilt). May be nil.
	Notice func(line string)

	Agent []byte // the program that becomes /init; nil: the guest agent that is built in
}

// Image is a kernel and a base initramfs, open and verified. It can be used for any number of VMs.
type Image struct {
	kernel *os.File // with pvh in memory, so that Close can take it away from the VMs
	base   *os.File
	size   int64 // of base, without the cache's trailer
	pvh    bool
}

// keep is how many entries of each kind stay in the cache: an upgrade leaves two kernels in use, and
// with and without a devdax region, by 9p and by virtiofs, there are four initramfs a kernel.
var keep = map[string]int{"vmlinux": 3, "initramfs": 8}

// Format of the cached files; a new one makes the old entries unused.
const (
	vmlinuxFormat   = "3"
	initramfsFormat = "2"
)

// Open returns the image for a request, from the cache or made now (1 to 2 s for a new kernel).
// The caller closes it when no more VMs are to be started.
func Open(r Request) (*Image, error) {
	prog := r.Agent
	if prog == nil {
		var err error
		if prog, err = Agent(); err != nil {
			return nil, err
		}
	}
	dir, err := cache.Open()
	if err != nil {
		r.notice(fmt.Sprintf("%v: the VMs' image is made anew each time", err))
		dir = nil
	}
	s := store{dir: dir, notice: r.notice}
	i := &Image{}
	if err := i.openKernel(r.Kernel, &s); err != nil {
		i.Close()
		return nil, err
	}
	if err := i.openBase(r, prog, &s); err != nil {
		i.Close()
		return nil, err
	}
	if s.made {
		if dir != nil {
			dir.Trim(keep)
		}
		debug.FreeOSMemory() // an unpacked kernel is 50 MB, and this process may live long
	}
	return i, nil
}

func (r *Request) notice(line string) {
	if r.Notice != nil {
		r.Notice(line)
	}
}

// openKernel opens the ELF image of a kernel, or the bzImage where it has none with a PVH entry.
func (i *Image) openKernel(k Kernel, s *store) error {
	bz, err := openRegular(k.Path)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return unreadableError(k.Path)
		}
		return fmt.Errorf("kernel %w", err)
	}
	defer bz.Close()
	st, err := bz.Stat()
	if err != nil {
		return err
	}
	key := entryKey("vmlinux", vmlinuxFormat, k.Path, fileID(st))
	f, size, err := s.get(key, "kernel "+k.Version, func() ([]byte, error) {
		whole, err := readFile(k.Path, maxBzImage)
		if err != nil {
			return nil, err
		}
		image, err := vmlinux(whole)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Path, err)
		}
		if !hasPVH(image) {
			return []byte{}, nil // remembered: start the bzImage itself
		}
		if image, err = compactELF(image); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Path, err)
		}
		return image, nil
	})
	if err != nil {
		return err
	}
	defer f.Close()
	if size == 0 {
		i.kernel, err = os.Open(k.Path)
		return err
	}
	i.kernel, err = memCopy("nearmetal-kernel", f, size)
	i.pvh = true
	return err
}

// openBase opens the base initramfs.
func (i *Image) openBase(r Request, prog []byte, s *store) error {
	ix, err := readModuleIndex(r.Kernel)
	if err != nil {
		return err
	}
	want := append(append([]string{}, baseModules...), fileModules(r.Files)...)
	if r.Devdax {
		want = append(want, devdaxModules...)
	}
	drivers, err := ix.drivers(r.Aliases)
	if err != nil {
		return err
	}
	mods, err := ix.resolve(append(append(want, r.Modules...), drivers...))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(prog)
	parts := []string{initramfsFormat, r.Kernel.Version, hex.EncodeToString(sum[:])}
	for _, m := range mods {
		st, err := os.Stat(m.path)
		if err != nil {
			return fmt.Errorf("module %s of kernel %s: %w (install the package of the kernel's modules again)", m.name, r.Kernel.Version, err)
		}
		parts = append(parts, m.path, fileID(st))
	}
	i.base, i.size, err = s.get(entryKey("initramfs", parts...), "initramfs", func() ([]byte, error) {
		return initramfs(prog, mods)
	})
	return err
}

// fileID distinguishes one version of a file from another without reading it.
func fileID(st os.FileInfo) string {
	return fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
}

// entryKey names a cache entry by what it is made from.
func entryKey(kind string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return kind + "-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// KernelFile is the file for QEMU's -kernel. It belongs to the Image.
func (i *Image) KernelFile() *os.File { return i.kernel }

// PVH says whether KernelFile is an ELF image with a PVH entry (that qboot can start); if not, it is the bzImage.
func (i *Image) PVH() bool { return i.pvh }

// WithConfig returns a new memory file: the base initramfs followed by a cpio archive that
// holds config (at most 1 MiB) as /nearmetal/config. The caller closes it. Safe for concurrent use.
func (i *Image) WithConfig(config []byte) (*os.File, error) {
	tail, err := configArchive(config)
	if err != nil {
		return nil, err
	}
	f, err := memCopy("nearmetal-initrd", i.base, i.size)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(tail, i.size); err != nil {
		f.Close()
		return nil, fmt.Errorf("initramfs in memory: %w", err)
	}
	return f, nil
}

// memCopy returns a file in memory with the first n bytes of another.
func memCopy(name string, from *os.File, n int64) (*os.File, error) {
	f, err := memFile(name)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, io.NewSectionReader(from, 0, n))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s in memory: %w", name, err)
	}
	return f, nil
}

// memFile returns an empty file in memory that vanishes with its last descriptor.
func memFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Close releases the files, and the memory of the kernel's image. Every VM that was started with it must be past
// the start of its QEMU (qemu.Start has returned): QEMU keeps the image mapped to the VM's end, but reads it no more.
func (i *Image) Close() error {
	var err error
	if i.pvh && i.kernel != nil {
		if st, serr := i.kernel.Stat(); serr == nil {
			err = unix.Fallocate(int(i.kernel.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
		}
	}
	for _, f := range []*os.File{i.kernel, i.base} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	i.kernel, i.base = nil, nil
	return err
}
