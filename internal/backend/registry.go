package backend

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Default is the driver that Open uses for an empty name.
const Default = "qemu"

var (
	mu      sync.Mutex
	drivers = map[string]func(name string) (Driver, error){}
)

// Register registers a driver under the scheme of its names: "libvirt" for libvirt and for libvirt:///session. open
// gets the whole name. It is called from init functions of drivers; a program has the drivers that it imports (see
// backend/all).
func Register(scheme string, open func(name string) (Driver, error)) {
	mu.Lock()
	defer mu.Unlock()
	if drivers[scheme] != nil {
		panic("backend: " + scheme + " is registered twice")
	}
	drivers[scheme] = open
}

// Open makes the driver called name: a scheme, or a scheme, a colon and the driver's own address; "" is Default. It
// reads and changes nothing outside this process. The caller closes it.
func Open(name string) (Driver, error) {
	if name == "" {
		name = Default
	}
	if err := Known(name); err != nil {
		return nil, err
	}
	mu.Lock()
	open := drivers[Scheme(name)]
	mu.Unlock()
	return open(name)
}

// Scheme returns the part of a driver's name that selects the driver: "libvirt" for libvirt:///session, and for
// qemu:///session, which is its name in libvirt's own programs.
func Scheme(name string) string {
	if strings.HasPrefix(name, "qemu:///") {
		return "libvirt"
	}
	scheme, _, _ := strings.Cut(name, ":")
	return scheme
}

// Known returns nil if this program has the driver called name, else an error that lists the known ones. "" is
// Default, as for Open.
func Known(name string) error {
	names := Names()
	if name == "" || slices.Contains(names, Scheme(name)) {
		return nil
	}
	has := strings.Join(names, ", ")
	if has == "" {
		has = "none"
	}
	hint := ""
	if s := Scheme(name); s == "kvm" || s == "tcg" {
		hint = fmt.Sprintf("; for %s use --accel %s", strings.ToUpper(s), s)
	}
	return fmt.Errorf("unknown backend %.60q (have %s)%s", Scheme(name), has, hint)
}

// Names returns the schemes of this program's drivers, sorted.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	var list []string
	for n := range drivers {
		list = append(list, n)
	}
	sort.Strings(list)
	return list
}
