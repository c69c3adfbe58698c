// Package image makes the files that a VM boots from: the ELF image extracted from the host distribution's kernel,
// and an initramfs with nearmetal's agent as /init and the modules it must load. Both are cached, and verified at
// every use.
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

// Request describes the wanted image.
type Request struct {
	Kernel  Kernel
	Files   string   // kind by which the guest accesses files of the host: "9p" (or ""), "virtiofs"
	Devdax  bool     // the region is presented as a devdax device, which needs additional modules
	Modules []string // additional modules, by name
	// Aliases are devices whose drivers are needed, in the kernel's form (modalias of sysfs).
	Aliases []string
	// Notice is called with lines for the user, one at a time (a cache entry was corrupted and rebuilt). May be nil.
	Notice func(line string)

	Agent []byte // the program that becomes /init; nil: the built-in guest agent
}

// Image is a kernel and a base initramfs, open and verified. It can be used for any number of VMs.
type Image struct {
	kernel *os.File // in memory if pvh, so that Close can free it although VMs map it
	base   *os.File
	size   int64 // of base, without the cache's trailer
	pvh    bool
}

// keep is how many entries of each kind stay in the cache: after an upgrade two kernels are in use, and a kernel has
// four initramfs: with and without a devdax region, by 9p and by virtiofs.
var keep = map[string]int{"vmlinux": 3, "initramfs": 8}

// Format of the cached files; a new value invalidates the old entries.
const (
	vmlinuxFormat   = "3"
	initramfsFormat = "2"
)

// Open returns the image for a request, from the cache or newly made (1 to 2 s for a new kernel). The caller closes
// it when no more VMs will be started.
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

// openKernel opens the ELF image of a kernel, or its bzImage if no ELF image with a PVH entry exists.
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
			return []byte{}, nil // cached as empty: boot the bzImage itself
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

// fileID distinguishes versions of a file without reading it.
func fileID(st os.FileInfo) string {
	return fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
}

// entryKey returns the name of a cache entry, which depends on its inputs.
func entryKey(kind string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return kind + "-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// KernelFile returns the file for QEMU's -kernel. It belongs to the Image.
func (i *Image) KernelFile() *os.File { return i.kernel }

// PVH reports whether KernelFile is an ELF image with a PVH entry (which qboot can boot); otherwise it is the
// bzImage.
func (i *Image) PVH() bool { return i.pvh }

// WithConfig returns a new memory file: the base initramfs followed by a cpio archive with config (at most 1 MiB) as
// /nearmetal/config. The caller closes it. Safe for concurrent use.
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

// memCopy returns a file in memory with the first n bytes of another file.
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

// memFile returns an empty file in memory that disappears with its last descriptor.
func memFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Close releases the files, and the memory of the kernel's image. The QEMU of every VM that uses it must have started
// (qemu.Start has returned): QEMU keeps the image mapped until the VM's end, but no longer reads it.
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
