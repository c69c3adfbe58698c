package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxIndex  = 64 << 20 // bytes of modules.dep or modules.builtin
	maxModule = 64 << 20 // bytes of one module, unpacked
)

// baseModules are needed by every VM: the agent's channel, the overlay of the root, and the network. Built-in ones
// are omitted, and dependencies are added.
var baseModules = []string{"virtio_pci", "virtio_console", "overlay", "virtio_net"}

// mounters are the modules that mount files of the host, by the kind of export.
var mounters = map[string][]string{"9p": {"9pnet_virtio", "9p"}, "virtiofs": {"virtiofs"}}

// fileModules returns the modules of a kind; "" is 9p.
func fileModules(kind string) []string {
	if kind == "" {
		kind = "9p"
	}
	return mounters[kind]
}

// Mounts returns the reason why the kernel cannot mount files of the host by a kind ("9p", "virtiofs"), or nil if it
// can.
func (k Kernel) Mounts(kind string) error {
	ix, err := readModuleIndex(k)
	if err != nil {
		return err
	}
	_, err = ix.resolve(fileModules(kind))
	return err
}

// devdaxModules present an NVDIMM as a devdax device.
var devdaxModules = []string{"nfit", "nd_pmem", "dax_pmem", "device_dax"}

// module is a kernel module to load.
type module struct {
	name string // underscores instead of hyphens, as in lsmod
	path string // of the file, .ko, .ko.xz, .ko.zst or .ko.gz
}

// moduleIndex is modules.dep and modules.builtin of one kernel.
type moduleIndex struct {
	kernel  Kernel
	files   map[string]string   // name → path below the modules' directory
	deps    map[string][]string // name → its dependencies (all, not only direct ones), in modules.dep's order
	builtin map[string]bool
}

func readModuleIndex(k Kernel) (*moduleIndex, error) {
	ix := &moduleIndex{kernel: k, files: map[string]string{}, deps: map[string][]string{}, builtin: map[string]bool{}}
	if k.Modules == "" {
		return ix, nil
	}
	for name, parse := range map[string]func(io.Reader) error{modulesDep: ix.parseDep, "modules.builtin": ix.parseBuiltin} {
		p := filepath.Join(k.Modules, name)
		f, err := openRegular(p)
		if errors.Is(err, os.ErrNotExist) && name == "modules.builtin" {
			continue // a kernel without built-in modules
		}
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Version, err)
		}
		err = parse(io.LimitReader(f, maxIndex))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w (depmod %s makes it anew)", p, err, k.Version)
		}
	}
	return ix, nil
}

// parseDep reads modules.dep: "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko …".
func (ix *moduleIndex) parseDep(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for line := 1; sc.Scan(); line++ {
		if strings.TrimSpace(sc.Text()) == "" {
			continue
		}
		file, rest, ok := strings.Cut(sc.Text(), ":")
		name, err := moduleName(file)
		if !ok || err != nil {
			return fmt.Errorf("line %d: not \"module: dependencies\"", line)
		}
		ix.files[name] = file
		needs := strings.Fields(rest)
		for i, f := range needs {
			if needs[i], err = moduleName(f); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
		}
		ix.deps[name] = needs
	}
	return sc.Err()
}

// parseBuiltin parses modules.builtin: one path per line.
func (ix *moduleIndex) parseBuiltin(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for line := 1; sc.Scan(); line++ {
		if strings.TrimSpace(sc.Text()) == "" {
			continue
		}
		name, err := moduleName(sc.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		ix.builtin[name] = true
	}
	return sc.Err()
}

// moduleName returns a module's name from its file's path. Paths must stay below the modules' directory.
func moduleName(file string) (string, error) {
	if !filepath.IsLocal(file) {
		return "", fmt.Errorf("bad module path %.80q", file)
	}
	base := filepath.Base(file)
	for _, ext := range []string{".xz", ".zst", ".gz"} {
		base = strings.TrimSuffix(base, ext)
	}
	name, ok := strings.CutSuffix(base, ".ko")
	name = strings.ReplaceAll(name, "-", "_")
	if !ok || !versionOK(name) {
		return "", fmt.Errorf("bad module path %.80q", file)
	}
	return name, nil
}

// resolve returns the modules to load for the wanted ones, in the order of loading: each module after its
// dependencies.
func (ix *moduleIndex) resolve(want []string) ([]module, error) {
	if ix.kernel.Modules == "" {
		return nil, nil // all wanted modules are assumed to be built in
	}
	var order []module
	done := map[string]bool{}
	var add func(name, asked string) error
	add = func(name, asked string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		file, ok := ix.files[name]
		if !ok {
			if ix.builtin[name] {
				return nil
			}
			return ix.missing(name, asked)
		}
		// modules.dep lists the dependencies so that the last one has to be loaded first.
		deps := ix.deps[name]
		for i := len(deps) - 1; i >= 0; i-- {
			if err := add(deps[i], asked); err != nil {
				return err
			}
		}
		order = append(order, module{name: name, path: filepath.Join(ix.kernel.Modules, file)})
		return nil
	}
	for _, name := range want {
		n := strings.ReplaceAll(name, "-", "_")
		if err := add(n, n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// missing returns the error for a module that a kernel does not have.
func (ix *moduleIndex) missing(name, asked string) error {
	what := name
	if name != asked {
		what = name + " (needed by " + asked + ")"
	}
	return fmt.Errorf("kernel %s has no module %s in %s: install the rest of its modules (on Ubuntu linux-modules-%s and linux-modules-extra-%s), or take another kernel with --kernel",
		ix.kernel.Version, what, ix.kernel.Modules, ix.kernel.Version, ix.kernel.Version)
}

// read returns a module's ELF object, unpacked.
func (m module) read() ([]byte, error) {
	b, err := readFile(m.path, maxModule)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m.name, err)
	}
	out, err := unpack(b, maxModule)
	if err != nil {
		return nil, fmt.Errorf("module %s: %s: %w", m.name, m.path, err)
	}
	if !bytes.HasPrefix(out, []byte("\x7fELF")) {
		return nil, fmt.Errorf("module %s: %s: not an ELF object", m.name, m.path)
	}
	return out, nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s: %d bytes are more than the %d that it may have", path, st.Size(), limit)
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
