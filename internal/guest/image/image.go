// Package image makes what a VM is started from: the host distribution's kernel
// with its ELF image taken out, and an initramfs that holds nearmetal's agent as
// /init and the modules it must load. Both are cached, and checked at every use.
package image

import (
	"os"
)

// Request says what image is wanted.
type Request struct {
	Kernel  Kernel
	Devdax  bool     // the region is shown as a devdax device: its modules are needed too
	Modules []string // more modules, by name
	// Notice is told what the user should know, a line at a time (a cache entry was corrupted and rebuilt). May be nil.
	Notice func(line string)
}

// Image is a kernel and a base initramfs, open and verified. It can be used for any number of VMs.
type Image struct {
	kernel *os.File
	base   *os.File
	pvh    bool
}

// KernelFile is the file for QEMU's -kernel. It belongs to the Image.
func (i *Image) KernelFile() *os.File { return i.kernel }

// PVH says whether KernelFile is an ELF image with a PVH entry (that qboot can start); if not, it is the bzImage.
func (i *Image) PVH() bool { return i.pvh }

// Open gives the image for a request, from the cache or made now. The caller closes it when no more VMs are to be started.
func Open(r Request) (*Image, error) { return nil, nil }

// WithConfig gives a new memory file: the base initramfs followed by a cpio archive that
// holds config as /nearmetal/config. The caller closes it.
func (i *Image) WithConfig(config []byte) (*os.File, error) { return nil, nil }

// Close releases the files. VMs that were started keep what they have open.
func (i *Image) Close() error { return nil }
