package libvirt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/host"
)

// The oldest supported versions: they support what package domain writes, and QEMU's -netdev stream.
const (
	oldestDaemon = 9_000_000
	oldestQEMU   = 7_002_000
)

// version formats a libvirt version.
func version(v uint64) string { return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000) }

// found is the capabilities of a daemon and its QEMU.
type found struct {
	daemon, qemu uint64
	emulator     string // path of QEMU
	devices      string // QEMU's lists of devices and of networks
	netdevs      string
	qboot        string // path of the small firmware; "": not installed
}

// find queries the daemon and its QEMU. emulator is the QEMU that the cluster file names; "": libvirt's choice.
func find(ctx context.Context, c *daemon.Conn, emulator string, accel host.Accel) (found, error) {
	var f found
	var err error
	if f.daemon, f.qemu, err = c.Versions(ctx); err != nil {
		return f, err
	}
	if f.daemon < oldestDaemon {
		return f, fmt.Errorf("libvirtd at %s is %s: 9.0.0 is the oldest that nearmetal runs domains with", c.Address, version(f.daemon))
	}
	if emulator != "" {
		path, err := exec.LookPath(emulator)
		if err != nil {
			return f, fmt.Errorf("QEMU: %w", err)
		}
		if emulator, err = filepath.Abs(path); err != nil {
			return f, err
		}
	} else if f.qemu < oldestQEMU {
		return f, fmt.Errorf("the QEMU of libvirtd at %s is %s: 7.2.0 is the oldest that nearmetal runs with", c.Address, version(f.qemu))
	}
	kind := kindOf(accel)
	text, err := c.Capabilities(ctx, emulator, kind)
	if err != nil {
		return f, fmt.Errorf("libvirtd at %s can make no q35 domain of type %s: %w", c.Address, kind, err)
	}
	var caps libvirtxml.DomainCaps
	if err := caps.Unmarshal(text); err != nil || !filepath.IsAbs(caps.Path) {
		return f, fmt.Errorf("libvirtd at %s does not report the capabilities of its domains", c.Address)
	}
	f.emulator = caps.Path
	return f, f.ask(ctx)
}

// ask has QEMU list its devices, because libvirt reports only few of them.
func (f *found) ask(ctx context.Context) error {
	var wg sync.WaitGroup
	var errs [3]error
	for i, q := range []struct {
		args []string
		to   *string
	}{
		{[]string{"-machine", "none", "-device", "help"}, &f.devices},
		{[]string{"-machine", "none", "-netdev", "help"}, &f.netdevs},
		{[]string{"-L", "help"}, &f.qboot},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out, err := exec.CommandContext(ctx, f.emulator, q.args...).Output()
			*q.to, errs[i] = string(out), err
		}()
	}
	wg.Wait()
	for _, err := range errs[:2] {
		if err != nil {
			return fmt.Errorf("%s, which libvirtd runs: %w", f.emulator, err)
		}
	}
	dirs := strings.Split(f.qboot, "\n")
	f.qboot = ""
	for _, dir := range dirs {
		p := filepath.Join(dir, "qboot.rom")
		if st, err := os.Stat(p); filepath.IsAbs(dir) && err == nil && st.Mode().IsRegular() {
			f.qboot = p
			break
		}
	}
	return nil
}

func (f *found) hasDevice(name string) bool { return strings.Contains(f.devices, `name "`+name+`"`) }

func (f *found) hasNetdev(name string) bool {
	return strings.Contains("\n"+f.netdevs+"\n", "\n"+name+"\n")
}

// kindOf returns the type of a domain.
func kindOf(a host.Accel) string {
	if a == host.KVM {
		return "kvm"
	}
	return "qemu"
}

// caps translates them to the capabilities that all backends share. The user's own daemon has only the user's rights.
func (f *found) caps(a daemon.Address) backend.Caps {
	why := map[backend.Cap]string{
		backend.CapVirtiofs: "libvirt shows a directory by virtiofs for writing only before 11.0: say files: 9p",
		backend.CapOwnDisk:  "its VMs start from this host's files: write root: host, or a directory",
		backend.CapJail:     "a domain's process is libvirtd's: say isolation: standard, or --on qemu",
	}
	c := backend.Caps{Pins: true, DirectKernel: true, Sandbox: true, Why: why}
	lack := func(what backend.Cap, device, cure string) {
		why[what] = fmt.Sprintf("%s, which libvirtd runs, has no %s: %s", f.emulator, device, cure)
	}
	if f.hasDevice("virtio-9p-pci") {
		c.Exports, c.Veil = []backend.ExportKind{backend.Export9p}, true
	} else {
		lack(backend.Cap9p, "virtio-9p-pci", "take a QEMU that is built with virtfs, with --qemu, or say --on qemu and files: virtiofs")
		why[backend.CapHostFiles] = why[backend.Cap9p]
	}
	if f.hasNetdev("stream") {
		c.Links = append(c.Links, backend.LinkStream, backend.LinkTap)
	}
	if f.hasNetdev("user") {
		c.Links = append(c.Links, backend.LinkUser)
		c.Filter = f.hasNetdev("stream") && f.hasNetdev("hubport")
	}
	lack(backend.CapFilter, "hubport", "take another with --qemu, or say network: {uplink: none}")
	lack(backend.CapUserNetwork, "user network", "say network: {uplink: none}, or --on qemu, which takes passt instead")
	if f.hasDevice("ivshmem-plain") {
		c.Regions = append(c.Regions, "ivshmem")
	}
	if f.hasDevice("nvdimm") {
		c.Regions = append(c.Regions, "devdax")
	}
	lack(backend.CapIvshmem, "ivshmem-plain", "say region: {device: devdax}, or region: {size: 0} for none")
	lack(backend.CapDevdax, "nvdimm", "say region: {device: ivshmem}, or region: {size: 0} for none")
	c.VFIO = f.hasDevice("vfio-pci") && !a.Session
	why[backend.CapVFIO] = "the user's own libvirtd may not lock a VM's memory, which VFIO needs: say --on libvirt:///system, or --on qemu"
	return c
}
