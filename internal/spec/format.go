package spec

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/text"
)

// formats are the rules that a field's `format` tag names. Each gets the text of a value, which is not empty, and
// returns the fault, or "".
var formats = map[string]func(string) string{
	"backend":      backend,
	"cluster-name": clusterName,
	"host-name":    hostName,
	"vm-name":      vmName,
	"path":         path,
	"target":       target,
	"cidr":         cidr,
	"variable":     variable,
	"kernel-arg":   kernelArg,
	"interface":    interfaceName,
	"pci-address":  pciAddress,
	"device-name":  deviceName,
	"power-of-two": powerOfTwo,
	"port":         port,
	"inventory":    inventory,
	"address":      address,
	"domain":       domain,
	"user":         user,
}

var (
	backends     = lazyregexp.New(`^[a-z][a-z0-9-]{0,31}(:[!-~]{0,999})?$`)
	clusterNames = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,39}$`)
	hostNames    = lazyregexp.New(`^[a-z][a-z0-9-]{0,55}$`)
	vmNames      = lazyregexp.New(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	variables    = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)
	interfaces   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)
	pciAddresses = lazyregexp.New(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	shortPCI     = lazyregexp.New(`^[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	domains      = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	users        = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
	deviceNames  = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$`)
)

// inventory checks a name of a vCenter's inventory, or a path in it.
func inventory(s string) string {
	if len(s) > 1000 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune("*?[]\\", r) }) {
		return text.Quote(s) + " is not a name in vCenter: write it without wildcards"
	}
	return ""
}

// address checks an IPv4 address.
func address(s string) string {
	if a, err := netip.ParseAddr(s); err != nil || !a.Is4() {
		return text.Quote(s) + " is not an IPv4 address"
	}
	return ""
}

// domain checks a name of a DNS domain.
func domain(s string) string {
	if !domains().MatchString(s) {
		return text.Quote(s) + " is not a domain: write it like cluster.example.com"
	}
	return ""
}

// user checks the name of a user in the VMs.
func user(s string) string {
	if !users().MatchString(s) {
		return text.Quote(s) + " is not a user's name"
	}
	return ""
}

// backend checks the form of a backend's name. The program knows which ones exist.
func backend(s string) string {
	if !backends().MatchString(s) {
		return text.Quote(s) + " is not a backend's name: write one that nearmetal version lists, such as qemu"
	}
	return ""
}

func clusterName(s string) string {
	if !clusterNames().MatchString(s) {
		return text.Quote(s) + " is not a cluster's name: use at most 40 letters, digits and hyphens, no hyphen first"
	}
	return ""
}

// hostName checks a group's name, to which a number is appended: 56 characters leave room for it in the 63 of a host
// name's label (RFC 1123).
func hostName(s string) string {
	if hostNames().MatchString(s) {
		return ""
	}
	if lower := strings.ToLower(s); hostNames().MatchString(lower) {
		return text.Quote(s) + " is not a host name in lower case: write " + lower
	}
	return text.Quote(s) + " is not a host name: use at most 56 lower-case letters, digits and hyphens, a letter first"
}

// vmName checks the whole host name of a VM, an RFC 1123 label that begins with a letter.
func vmName(s string) string {
	if s == "localhost" {
		return text.Quote(s) + " is every VM's name for itself: write another"
	}
	if !vmNames().MatchString(s) {
		return text.Quote(s) + " is not the host name of a VM: use at most 63 lower-case letters, digits and hyphens, a letter first, no hyphen last"
	}
	return ""
}

// port checks a TCP port's number.
func port(s string) string {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
		return text.Quote(s) + " is not a TCP port: write 1 to 65535"
	}
	return ""
}

// path checks a path or a program's name.
func path(s string) string {
	switch {
	case len(s) > 4095: // PATH_MAX without its NUL
		return "is longer than a path can be (4095 bytes)"
	case hasControl(s):
		return text.Quote(s) + " has control characters, which a path here may not have"
	}
	return ""
}

// target checks a path in a guest.
func target(s string) string {
	if message := path(s); message != "" {
		return message
	}
	if !strings.HasPrefix(s, "/") {
		return text.Quote(s) + " is not an absolute path in the guests: let it begin with /"
	}
	if strings.Contains(s+"/", "/../") {
		return text.Quote(s) + " goes up with ..: write the path without it"
	}
	return reservedTarget(s)
}

func cidr(s string) string {
	prefix, err := netip.ParsePrefix(s)
	switch {
	case err != nil || !prefix.Addr().Is4():
		return text.Quote(s) + " is not an IPv4 subnet: write address/length, such as 10.77.0.0/16"
	case prefix.Bits() < 8 || prefix.Bits() > 28:
		return text.Quote(s) + " has a length that is not 8 to 28"
	case prefix.Masked() != prefix:
		return text.Quote(s) + " is an address in a subnet: write the subnet, " + prefix.Masked().String()
	}
	return ""
}

func variable(s string) string {
	if !variables().MatchString(s) {
		return text.Quote(s) + " is not a variable's name: use letters, digits and underscores, no digit first"
	}
	return ""
}

func kernelArg(s string) string {
	switch {
	case hasControl(s):
		return text.Quote(s) + " has control characters"
	case len(s) > 1024:
		return "is longer than 1024 bytes"
	case strings.ContainsRune(s, ' ') && strings.Count(s, `"`) < 2:
		return text.Quote(s) + " is more than one argument: make each an item of the list"
	case strings.Count(s, `"`)%2 != 0:
		return text.Quote(s) + ` has a " without its partner`
	}
	return ""
}

func interfaceName(s string) string {
	if !interfaces().MatchString(s) {
		return text.Quote(s) + " is not an interface's name: use at most 15 letters, digits, dots, hyphens and underscores"
	}
	return ""
}

func pciAddress(s string) string {
	switch {
	case pciAddresses().MatchString(s):
		return ""
	case pciAddresses().MatchString(strings.ToLower(s)):
		return text.Quote(s) + " is not a PCI address in lower case: write " + strings.ToLower(s)
	case shortPCI().MatchString(strings.ToLower(s)):
		return text.Quote(s) + " is a PCI address without its domain: write 0000:" + strings.ToLower(s)
	}
	return text.Quote(s) + " is not a PCI address: write it as lspci -D does, such as 0000:41:00.0"
}

func deviceName(s string) string {
	if !deviceNames().MatchString(s) {
		return text.Quote(s) + " is not a device's name, such as mlx5_0, ens1f0 or 0000:41:00.0"
	}
	return ""
}

// powerOfTwo checks a size that is 0 or the size of a PCI BAR.
func powerOfTwo(s string) string {
	size, err := ParseSize(s)
	if err != nil {
		return err.Error()
	}
	if size == 0 || size >= MiB && size&(size-1) == 0 {
		return ""
	}
	power := MiB
	for power < size && power < TiB {
		power *= 2
	}
	return size.String() + " is not a power of two of at least 1MiB: write " + power.String() + ", or 0 for none"
}

// hasControl reports whether s has a character that would end a line, or a word of a protocol, where the text is
// used.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, unicode.IsControl)
}
