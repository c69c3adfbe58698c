package qemu

import (
	"fmt"
	"path/filepath"
	"strings"

	"nearmetal/internal/backend"
)

// export is a directory of the host that the VM can mount by 9p.
type export struct {
	backend.Export
	Index int
	FD    int // of the veiled directory; 0: opened by its path
}

// rootTag is the mount tag of a VM's root, which does not change while the VM runs.
const rootTag = "root"

// maxTag is the maximum length of a mount tag in the guest's driver, in bytes.
const maxTag = 31

func (e export) Valid() error { return validExport(e.Export) }

// validExport checks the requirements of all kinds of exports.
func validExport(e backend.Export) error {
	if err := validID("mount tag", e.Tag, maxTag); err != nil {
		return err
	}
	if !filepath.IsAbs(e.Path) || filepath.Clean(e.Path) != e.Path || strings.ContainsAny(e.Path, "\x00\n") {
		return fmt.Errorf("export %s: %.80q is not a clean absolute path", e.Tag, e.Path)
	}
	return nil
}

func (e export) Args() []string {
	id := fmt.Sprintf("fs%d", e.Index)
	path := e.Path
	if e.FD != 0 {
		path = fdPath(e.FD)
	}
	fs := []string{"id=" + id, "path=" + path}
	if e.ReadOnly {
		fs = append(fs, "security_model=passthrough", "readonly=on")
	} else {
		// As passthrough, but a QEMU that is not root may fail to change the owner of a new file.
		fs = append(fs, "security_model=none")
	}
	// Files on different file systems of the host may have equal inode numbers.
	fs = append(fs, "multidevs=remap")
	return []string{"-fsdev", option("local", fs...), "-device", option("virtio-9p-pci", "fsdev="+id, "mount_tag="+e.Tag)}
}
