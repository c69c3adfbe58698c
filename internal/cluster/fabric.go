package cluster

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// The libfabric provider in a VM: a copy of the host's, whatever the VM's root is.
const (
	// FabricDir is the folder that libfabric looks in.
	FabricDir = VMDir + "/libfabric"
	// FabricFile is the provider's name in it.
	FabricFile = "libivshmem-fi.so"
	// UCXFile is the transport for UCX, which programs preload, in the same folder.
	UCXFile = "libnearmetal-ucx.so"

	vmFabricDir    = "vm-libfabric" // what is pushed to the VMs
	maxFabricBytes = 16 << 20
)

// findFabric returns the provider for the VMs of s, beside the program exe: as `make
// install` puts it, or as `make` leaves it. Where there is none that the VMs can use it
// says why.
func findFabric(s *spec.Cluster, exe string) (path, why string) {
	if to, err := filepath.EvalSymlinks(exe); err == nil {
		exe = to
	}
	dir := filepath.Dir(exe)
	for _, p := range []string{
		filepath.Join(dir, "../lib/nearmetal/libfabric", FabricFile),
		filepath.Join(dir, "c/fabric", FabricFile),
	} {
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			path = p
			break
		}
	}
	if path == "" {
		return "", fmt.Sprintf("there is no %s in ../lib/nearmetal/libfabric beside %s (make install puts it there)", FabricFile, exe)
	}
	if s.Root == "host" {
		return path, ""
	}
	if s.Root == spec.RootBackend { // what is on that disk cannot be read here
		return path, ""
	}
	needs, err := libcVersions(path)
	if err != nil {
		return "", fmt.Sprintf("%s: %v", path, err)
	}
	if why := lacks(s.Root, needs); why != "" {
		return "", why
	}
	return path, ""
}

// findUCX returns the transport for UCX, which is installed beside the provider at fabric. Where there is none that
// the VMs of s can use it says why.
func findUCX(s *spec.Cluster, fabric string) (path, why string) {
	path = filepath.Join(filepath.Dir(fabric), "../ucx", UCXFile)
	if fi, err := os.Stat(path); err != nil || !fi.Mode().IsRegular() {
		return "", fmt.Sprintf("there is no %s (make install puts it there)", path)
	}
	if s.Root == "host" || s.Root == spec.RootBackend {
		return path, ""
	}
	needs, err := libcVersions(path)
	if err != nil {
		return "", fmt.Sprintf("%s: %v", path, err)
	}
	return path, lacks(s.Root, needs)
}

// libcVersions returns the versions of the C library's interface that a program or library
// needs: "GLIBC_2.34".
func libcVersions(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var list []string
	for _, s := range symbols {
		if strings.HasPrefix(s.Version, "GLIBC_") && !seen[s.Version] {
			seen[s.Version] = true
			list = append(list, s.Version)
		}
	}
	sort.Strings(list)
	return list, nil
}

// lacks says what the C library below root has not of the versions needed; empty: it has all.
func lacks(root string, needs []string) string {
	for _, p := range []string{
		"lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6",
		"lib64/libc.so.6", "usr/lib64/libc.so.6", "usr/lib/libc.so.6",
	} {
		libc, err := readBelow(root, p)
		if err != nil {
			continue
		}
		for _, v := range needs {
			// The names of an ELF file's versions stand in it as C strings.
			if !bytes.Contains(libc, append([]byte(v), 0)) {
				return fmt.Sprintf("root %s has a C library without %s, which %s needs", root, v, FabricFile)
			}
		}
		return ""
	}
	return fmt.Sprintf("root %s has no glibc, which %s needs", root, FabricFile)
}

// readBelow reads a file below root, whose symbolic links are not followed out of it.
func readBelow(root, path string) ([]byte, error) {
	f, err := openBelow(root, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFabricBytes))
}

// openBelow opens a file for reading; links in its path, absolute ones too, lead to what
// they would where root is the root.
func openBelow(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// prepareFabric decides whether the VMs get the provider, and puts what is pushed to them
// into the cluster's directory.
func (c *Cluster) prepareFabric(o Options, region *plan.Region, notice func(string)) error {
	s := o.Spec
	if s.Fabric == "none" || region == nil {
		if o.Verbose && len(c.vms) > 1 && !c.caps.Remote { // a back end elsewhere may promise one: see Ways
			why := "fabric: none"
			if region == nil {
				why = "no region"
			}
			notice("MPI messages between VMs go over their network: " + why)
		}
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	path, why := findFabric(s, exe)
	if why != "" {
		notice("MPI messages between VMs go over their network, not over the region: " + why)
		return nil
	}
	dir := filepath.Join(c.dir, vmFabricDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	ucx := ""
	if s.Fabric != "libfabric" {
		if ucx, why = findUCX(s, path); why != "" {
			if o.Verbose || s.Fabric == "ucx" {
				notice("MPI libraries on UCX send between VMs over their network, not over the region: " + why)
			}
			ucx = ""
		}
	}
	for _, file := range []string{path, ucx} {
		if file == "" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o755); err != nil {
			return err
		}
	}
	if o.Verbose {
		which := "VMs"
		if c.wiring.overlay != nil {
			which = "VMs of one host"
		}
		notice(fmt.Sprintf("MPI libraries on libfabric send between %s over the region of %s: %s",
			which, roundSize(region.SizeBytes), path))
		if ucx != "" {
			notice(fmt.Sprintf("MPI libraries on UCX as well, by %s, which is preloaded", ucx))
		}
	}
	return c.write(func(r *Record) { r.Fabric, r.UCX = path, ucx })
}

// putFabric puts the provider into a VM, and the transport for UCX where it is asked for.
func (c *Cluster) putFabric(ctx context.Context, a *guest.Agent) error {
	if c.Record().Fabric == "" {
		return nil
	}
	return a.Push(ctx, guest.Copy{Local: filepath.Join(c.dir, vmFabricDir), Remote: FabricDir})
}
