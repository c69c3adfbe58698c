// Package provider finds the libfabric provider and the UCX transport that the VMs of a cluster get, and the
// requirements of both on the VMs' C library.
package provider

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/spec"
)

// maxLibraryBytes bounds the size of a C library that is read, in bytes.
const maxLibraryBytes = 16 << 20

// Find returns the provider for the VMs of s, relative to the program exe: at its path after `make install`, or at
// its path in the build directory of `make`. If there is none that the VMs can use, path is empty and why is the
// reason.
func Find(s *spec.Cluster, exe string) (path, why string) {
	if to, err := filepath.EvalSymlinks(exe); err == nil {
		exe = to
	}
	dir := filepath.Dir(exe)
	for _, p := range []string{
		filepath.Join(dir, "../lib/nearmetal/libfabric", state.FabricFile),
		filepath.Join(dir, "c/fabric", state.FabricFile),
	} {
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			path = p
			break
		}
	}
	if path == "" {
		return "", fmt.Sprintf("there is no %s in ../lib/nearmetal/libfabric beside %s (make install puts it there)", state.FabricFile, exe)
	}
	if s.Root == "host" {
		return path, ""
	}
	if s.Root == spec.RootBackend { // the backend's disk cannot be read here
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

// FindUCX returns the UCX transport, which is installed next to the provider at fabric. If there is none that the VMs
// of s can use, path is empty and why is the reason.
func FindUCX(s *spec.Cluster, fabric string) (path, why string) {
	path = filepath.Join(filepath.Dir(fabric), "../ucx", state.UCXFile)
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

// libcVersions returns the versions of the C library's interface that a program or library needs, such as
// "GLIBC_2.34".
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

// lacks returns why the C library below root does not satisfy needs; "" if it has all versions of needs.
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
			// An ELF file contains the names of its versions as C strings.
			if !bytes.Contains(libc, append([]byte(v), 0)) {
				return fmt.Sprintf("root %s has a C library without %s, which %s needs", root, v, state.FabricFile)
			}
		}
		return ""
	}
	return fmt.Sprintf("root %s has no glibc, which %s needs", root, state.FabricFile)
}

// readBelow reads a file below root. Symbolic links do not lead out of root.
func readBelow(root, path string) ([]byte, error) {
	f, err := OpenBelow(root, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxLibraryBytes))
}

// OpenBelow opens a file below root for reading. Symbolic links in its path, also absolute ones, are resolved as if
// root were the root directory.
func OpenBelow(root, path string) (*os.File, error) {
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
