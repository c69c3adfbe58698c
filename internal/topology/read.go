package topology

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/topology/machine"
)

// Read reads a host from the sysfs and proc below root: "/" is this host, any other directory a captured tree. Missing
// or contradictory data is repaired if there is one sensible way (Host.Repairs reports it), and is otherwise an error.
func Read(root string) (*Host, error) {
	t, err := openDir(root)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return readTree(t, root)
}

// suffixes maps suffixes of file names to readers in other packages.
var suffixes = map[string]func(name string) (*Host, error){}

// RegisterSuffix has Open read files whose names end with suffix by open. It is called from init functions.
func RegisterSuffix(suffix string, open func(name string) (*Host, error)) { suffixes[suffix] = open }

// Open reads a host from a directory (as Read), from an archive that `nearmetal topology gather` or
// hwloc-gather-topology made (.tar, .tar.gz, .tgz, .tar.bz2, .tbz2; .vsphere.tar.gz in package vsphere), from hwloc's
// XML (.xml), or from a description (.machine, package machine). A host without a name is named after the file.
func Open(name string) (*Host, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	for suffix, open := range suffixes {
		if strings.HasSuffix(name, suffix) && st.Mode().IsRegular() {
			return open(name)
		}
	}
	if st.IsDir() {
		return Read(name)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("topology: %s: neither a directory nor a file", name)
	}
	base := filepath.Base(name)
	if strings.HasSuffix(base, ".xml") {
		return ReadHwloc(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	switch {
	case strings.HasSuffix(base, ".machine"):
		m, err := machine.Parse(r)
		if err != nil {
			return nil, fmt.Errorf("topology: %s: %w", name, err)
		}
		return FromMachine(m)
	}
	for _, suffix := range archives {
		host, ok := strings.CutSuffix(base, suffix)
		if !ok {
			continue
		}
		t, err := readTar(r)
		if err != nil {
			return nil, fmt.Errorf("topology: %s: %w", name, err)
		}
		return readTree(t, host)
	}
	return nil, fmt.Errorf("topology: %s: not a directory, .tar, .tar.gz, .tar.bz2, .xml or .machine", name)
}

// archives are the suffixes of archives' names.
var archives = []string{".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar"}

// FromMachine returns the host of a description, read from the files that the description generates.
func FromMachine(m *machine.Machine) (*Host, error) {
	t := newMemTree()
	for _, f := range m.Files() {
		if f.Link != "" {
			t.link(f.Path, f.Link)
		} else {
			t.add(f.Path, f.Content)
		}
	}
	return readTree(t, m.Name)
}

// readTree reads a host from a tree. name is used in errors, and as the host's name if the tree has none.
func readTree(t tree, name string) (*Host, error) {
	h := &Host{}
	if s, err := t.read("proc/sys/kernel/hostname", 256); err == nil && validName(strings.TrimSpace(s)) {
		h.Name = strings.TrimSpace(s)
	} else if base := filepath.Base(name); validName(base) {
		h.Name = base
	} else {
		h.Name = "host"
	}
	readModel(t, h)
	if err := readCPUs(t, h); err != nil {
		return nil, fmt.Errorf("topology: %s: %w", name, err)
	}
	if err := readNodes(t, h); err != nil {
		return nil, fmt.Errorf("topology: %s: %w", name, err)
	}
	readKinds(t, h)
	readCaches(t, h)
	readLimits(t, h)
	readPCI(t, h)
	h.HugePageBytes = defaultHugePage(t)
	h.writeRepairs()
	return h, nil
}

// validName reports whether s can be the name of a host in a plan and on a terminal.
func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return false
		}
	}
	return s != "." && s != ".."
}
