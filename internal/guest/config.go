package guest

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// ConfigPath is where the agent looks for its configuration in the initramfs.
const ConfigPath = "/nearmetal/config"

// ModulesPath is where the agent finds the list of the kernel modules to load: paths in the initramfs, one per line,
// in the order of loading.
const ModulesPath = "/nearmetal/modules"

// PortName is the virtio-serial port that is the channel.
const PortName = "org.nearmetal.agent"

// RegionPath is the region in a VM: a file to mmap.
const RegionPath = "/dev/nearmetal/region"

// Config is the configuration of a VM's init.
type Config struct {
	Name  string // of the VM; also its host name
	Index int    // index in the cluster, from 0
	Root  Mount  // Target and ReadOnly are not used
	// OwnRoot: the VM already has a root, the disk that it booted from. Root is not used.
	OwnRoot bool
	Shares  []Mount
	// MaxInodes bounds the number of files of virtiofs mounts in the VM's caches; 0: no bound.
	MaxInodes uint64
	Links     []Link
	Hosts     []HostEntry
	// HostName is the host's own name: lines of its /etc/hosts that map it to a loopback address are omitted. "":
	// none.
	HostName string
	Region   *ConfigRegion // nil: none
	Peers    []string      // names of all VMs of the cluster
	// SoftRoCE are network interfaces of Links that get an RDMA device (rdma_rxe): rxe0, rxe1, … in their order. The
	// devices of Functions with Soft follow in the numbering.
	SoftRoCE  []string
	Functions []Function // of the host, passed through
}

// Function is a PCI function of the host as seen by the VM. Functions with the same IDs are distinguished by their
// order on the VM's PCI bus, which is that of QEMU's root ports.
type Function struct {
	Vendor, Device int          // 16 bits each
	Address        netip.Prefix // of its network interface; not valid: none
	Net, RDMA      bool         // its driver creates a network interface, an RDMA device: the boot waits for them
	Soft           bool         // with Net, without RDMA: an RDMA device (rdma_rxe) is created on its network interface
	IPoIB          bool         // with RDMA: also a network interface, if the kernel has IPoIB
	MTU            int          // of its network interface, bytes; 0: unchanged
}

// Mount is an export of the host.
type Mount struct {
	Tag      string // mount tag of the device
	Virtiofs bool   // by virtiofs; else by 9p
	MSize    int    // of 9p: maximum message size in bytes; 0: 262144
	Target   string // absolute path in the VM
	ReadOnly bool
}

// Link is a network interface of the VM.
type Link struct {
	Name    string // name to assign: eth0
	MAC     string // address by which it is found
	Address netip.Prefix
	MTU     int        // bytes; 0: unchanged
	Gateway netip.Addr // of the default route; not valid: none
}

// HostEntry is a line of /etc/hosts.
type HostEntry struct {
	Addr  netip.Addr
	Names []string
}

// ConfigRegion is the region as presented in the VM.
type ConfigRegion struct {
	Kind     string // "ivshmem" or "devdax"
	Size     uint64 // bytes
	UID, GID uint32 // owner of the device file, mode 0600
}

const configVersion = 1

// Encode checks the configuration and returns it as the lines of ConfigPath.
func (c *Config) Encode() ([]byte, error) {
	var b bytes.Buffer
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	if err := checkName("name of a VM", c.Name); err != nil {
		return nil, err
	}
	line("version %d", configVersion)
	line("name %s", c.Name)
	line("index %d", c.Index)
	msize := func(m Mount) int {
		if m.MSize == 0 {
			return 262144
		}
		return m.MSize
	}
	how := func(m Mount) string {
		if m.Virtiofs {
			return "virtiofs"
		}
		return strconv.Itoa(msize(m))
	}
	checkMount := func(m Mount) error {
		if err := checkName("mount tag", m.Tag); err != nil {
			return err
		}
		if n := msize(m); n < 4096 || n > 1<<24 {
			return fmt.Errorf("msize %d of mount tag %s: not 4096 to 16777216", n, m.Tag)
		}
		return nil
	}
	if !c.OwnRoot {
		if err := checkMount(c.Root); err != nil {
			return nil, err
		}
		line("root %s %s", c.Root.Tag, how(c.Root))
	} else {
		line("ownroot yes")
	}
	for _, m := range c.Shares {
		if err := checkMount(m); err != nil {
			return nil, err
		}
		if err := checkTarget(m.Target); err != nil {
			return nil, err
		}
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		line("share %s %s %s %s", m.Tag, how(m), mode, m.Target)
	}
	if c.MaxInodes != 0 {
		line("inodes %d", c.MaxInodes)
	}
	for _, l := range c.Links {
		if err := checkName("name of an interface", l.Name); err != nil || len(l.Name) > 15 {
			return nil, fmt.Errorf("%q cannot be the name of an interface", l.Name)
		}
		mac, err := net.ParseMAC(l.MAC)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("%s: %q is not a MAC address", l.Name, l.MAC)
		}
		if !l.Address.IsValid() || !l.Address.Addr().Is4() {
			return nil, fmt.Errorf("%s: %v is not an IPv4 address with a prefix", l.Name, l.Address)
		}
		if l.MTU != 0 && (l.MTU < 576 || l.MTU > 65535) {
			return nil, fmt.Errorf("%s: MTU %d is not 576 to 65535", l.Name, l.MTU)
		}
		gw := "-"
		if l.Gateway.IsValid() {
			if !l.Gateway.Is4() {
				return nil, fmt.Errorf("%s: gateway %v is not an IPv4 address", l.Name, l.Gateway)
			}
			gw = l.Gateway.String()
		}
		line("link %s %s %s %d %s", l.Name, mac, l.Address, l.MTU, gw)
	}
	for _, h := range c.Hosts {
		if !h.Addr.IsValid() || h.Addr.Zone() != "" || len(h.Names) == 0 {
			return nil, fmt.Errorf("%v %v cannot be a line of /etc/hosts", h.Addr, h.Names)
		}
		for _, n := range h.Names {
			if err := checkName("host name", n); err != nil {
				return nil, err
			}
		}
		line("host %s %s", h.Addr, strings.Join(h.Names, " "))
	}
	if c.HostName != "" {
		if err := checkName("host name", c.HostName); err != nil {
			return nil, err
		}
		line("hostname %s", c.HostName)
	}
	if r := c.Region; r != nil {
		if r.Kind != "ivshmem" && r.Kind != "devdax" {
			return nil, fmt.Errorf("%q is not a kind of region", r.Kind)
		}
		line("region %s %d %d %d", r.Kind, r.Size, r.UID, r.GID)
	}
	if err := c.encodeDevices(line); err != nil {
		return nil, err
	}
	for _, p := range c.Peers {
		if err := checkName("name of a VM", p); err != nil {
			return nil, err
		}
		line("peer %s", p)
	}
	return b.Bytes(), nil
}

// maxFunctions is the maximum number of functions in a VM: its root ports have 5 bits of slot number on two buses.
const maxFunctions = 64

// encodeDevices writes the lines of the devices.
func (c *Config) encodeDevices(line func(string, ...any)) error {
	for i, n := range c.SoftRoCE {
		if err := checkName("name of an interface", n); err != nil || len(n) > 15 || i >= 16 {
			return fmt.Errorf("%q cannot be the name of an interface with soft RoCE", n)
		}
		line("rdma rxe%d %s", i, n)
	}
	if len(c.Functions) > maxFunctions {
		return fmt.Errorf("%d devices are more than a VM can have (%d)", len(c.Functions), maxFunctions)
	}
	for _, f := range c.Functions {
		address := "-"
		if f.Address.IsValid() {
			if !f.Address.Addr().Is4() || f.Address.Addr().IsUnspecified() {
				return fmt.Errorf("device %04x:%04x: %v is not an IPv4 address with a prefix", f.Vendor, f.Device, f.Address)
			}
			address = f.Address.String()
		}
		if f.Vendor < 0 || f.Vendor > 0xffff || f.Device < 0 || f.Device > 0xffff {
			return fmt.Errorf("%x:%x is not the ID of a PCI device", f.Vendor, f.Device)
		}
		makes := "none"
		switch {
		case f.IPoIB:
			makes = "ipoib"
		case f.Net && f.RDMA:
			makes = "both"
		case f.Net && f.Soft:
			makes = "soft"
		case f.Net:
			makes = "net"
		case f.RDMA:
			makes = "rdma"
		}
		if f.MTU != 0 && (f.MTU < 576 || f.MTU > 65535) {
			return fmt.Errorf("device %04x:%04x: MTU %d is not 576 to 65535", f.Vendor, f.Device, f.MTU)
		}
		line("function %04x %04x %s %s %d", f.Vendor, f.Device, address, makes, f.MTU)
	}
	return nil
}

// checkName accepts up to 63 characters: letters, digits, and after the first also . _ -
func checkName(what, s string) error {
	ok := s != "" && len(s) <= 63
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (alnum || i > 0 && strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%q cannot be a %s", s, what)
	}
	return nil
}

// checkTarget accepts absolute clean paths that do not hide the agent's own mounts.
func checkTarget(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 4000 {
		return fmt.Errorf("%q cannot be where a share is mounted", p)
	}
	if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("%q cannot be where a share is mounted: a control character", p)
	}
	if p == "/run" {
		return fmt.Errorf("%q cannot be where a share is mounted: it is the VM's own", p)
	}
	for _, own := range []string{"/proc", "/sys", "/dev", "/run/nearmetal"} {
		if p == own || strings.HasPrefix(p, own+"/") {
			return fmt.Errorf("%q cannot be where a share is mounted: it is the VM's own", p)
		}
	}
	return nil
}
