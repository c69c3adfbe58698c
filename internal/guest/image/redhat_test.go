package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRedHatKernel covers Red Hat's kernels of EL9: virtio_pci is built in, everything else is a module, and 9p is
// missing.
func TestRedHatKernel(t *testing.T) {
	dir := t.TempDir()
	const dep = `kernel/fs/fuse/fuse.ko.xz:
kernel/fs/fuse/virtiofs.ko.xz: kernel/fs/fuse/fuse.ko.xz
kernel/fs/overlayfs/overlay.ko.xz:
kernel/net/core/failover.ko.xz:
kernel/drivers/net/net_failover.ko.xz: kernel/net/core/failover.ko.xz
kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko.xz kernel/net/core/failover.ko.xz
kernel/drivers/char/virtio_console.ko.xz:
kernel/drivers/nvdimm/libnvdimm.ko.xz:
kernel/drivers/acpi/nfit/nfit.ko.xz: kernel/drivers/nvdimm/libnvdimm.ko.xz
kernel/drivers/nvdimm/nd_pmem.ko.xz: kernel/drivers/nvdimm/libnvdimm.ko.xz
kernel/drivers/dax/device_dax.ko.xz:
kernel/drivers/dax/pmem/dax_pmem.ko.xz: kernel/drivers/nvdimm/libnvdimm.ko.xz
`
	for name, text := range map[string]string{"modules.dep": dep, "modules.builtin": "kernel/drivers/virtio/virtio_pci.ko\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k := Kernel{Version: "5.14.0-570.el9.x86_64", Modules: dir}
	if err := k.Mounts("9p"); err == nil || !strings.Contains(err.Error(), "5.14.0-570.el9.x86_64 has no module 9pnet_virtio") {
		t.Errorf("9p: %v", err)
	}
	if err := k.Mounts("virtiofs"); err != nil {
		t.Error(err)
	}
	ix, err := readModuleIndex(k)
	if err != nil {
		t.Fatal(err)
	}
	mods, err := ix.resolve(slices.Concat(baseModules, fileModules("virtiofs"), devdaxModules))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range mods {
		names = append(names, m.name)
	}
	if got, want := strings.Join(names, " "), "virtio_console overlay failover net_failover virtio_net fuse virtiofs libnvdimm nfit nd_pmem dax_pmem device_dax"; got != want {
		t.Errorf("loaded: %q, not %q", got, want)
	}
}
