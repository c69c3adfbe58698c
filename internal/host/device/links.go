package device

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

// Links queries and sets the kernel's network interfaces and their VFs.
type Links interface {
	There() bool
	// Get and Set access an attribute of VF number index of the PF's interface.
	Get(pf string, index int, key string) (string, error)
	Set(pf string, index int, key, value string) error
	// Carried returns the bytes that VF number index of the PF's interface has received and sent; zeroes if its
	// driver does not count.
	Carried(pf string, index int) (received, sent uint64, err error)
	// Eswitch and SetEswitch access the mode of a card's eswitch, by its PCI address.
	Eswitch(address string) (string, error)
	SetEswitch(address, mode string) error
	// Addresses returns those of an interface, without link-local ones.
	Addresses(name string) ([]string, error)
}

// netlinkLinks uses the running kernel (rtnetlink(7)).
type netlinkLinks struct{}

// linksOf returns the links of the host below a root. Tests replace it for captured trees.
var linksOf = func(root string) Links {
	if root != "" {
		return noLinks{}
	}
	return netlinkLinks{}
}

func (netlinkLinks) There() bool { return true }

func (netlinkLinks) Addresses(name string) ([]string, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	list, err := i.Addrs()
	var out []string
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, a.String())
		}
	}
	return out, err
}

// linkStates are the states of a VF's link (if_link.h, IFLA_VF_LINK_STATE_*).
var linkStates = []string{"auto", "up", "down"}

func (netlinkLinks) Get(pf string, index int, key string) (string, error) {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return "", fmt.Errorf("%s: %w", pf, err)
	}
	switch key {
	case "node-guid":
		return netlinkGUID(link, index, nl.IFLA_VF_IB_NODE_GUID)
	case "port-guid":
		return netlinkGUID(link, index, nl.IFLA_VF_IB_PORT_GUID)
	}
	for _, vf := range link.Attrs().Vfs {
		if vf.ID != index {
			continue
		}
		switch key {
		case "mac":
			if len(vf.Mac) == 6 {
				return vf.Mac.String(), nil
			}
		case "vlan":
			return strconv.Itoa(vf.Vlan), nil
		case "rate":
			return strconv.Itoa(int(vf.MaxTxRate)), nil
		case "spoofcheck":
			return onOff(vf.Spoofchk), nil
		case "trust":
			return onOff(vf.Trust == 1), nil // all bits set: not reported by the driver
		case "link-state", "policy":
			if int(vf.LinkState) < len(linkStates) {
				s := linkStates[vf.LinkState]
				if key == "policy" && s == "auto" {
					s = "follow"
				}
				return s, nil
			}
		}
		return "", nil
	}
	return "", fmt.Errorf("%s knows no VF %d", pf, index)
}

func (netlinkLinks) Carried(pf string, index int) (received, sent uint64, err error) {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", pf, err)
	}
	for _, vf := range link.Attrs().Vfs {
		if vf.ID == index {
			return vf.RxBytes, vf.TxBytes, nil
		}
	}
	return 0, 0, fmt.Errorf("%s knows no VF %d", pf, index)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func (netlinkLinks) Set(pf string, index int, key, value string) error {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return fmt.Errorf("%s: %w", pf, err)
	}
	number, _ := strconv.Atoi(value)
	switch key {
	case "mac", "node-guid", "port-guid":
		var a net.HardwareAddr
		if a, err = net.ParseMAC(value); err != nil {
			return err
		}
		switch key {
		case "mac":
			err = netlink.LinkSetVfHardwareAddr(link, index, a)
		case "node-guid":
			err = netlink.LinkSetVfNodeGUID(link, index, a)
		default:
			err = netlink.LinkSetVfPortGUID(link, index, a)
		}
	case "vlan":
		err = netlink.LinkSetVfVlan(link, index, number)
	case "rate":
		err = netlink.LinkSetVfRate(link, index, 0, number)
	case "spoofcheck":
		err = netlink.LinkSetVfSpoofchk(link, index, value == "on")
	case "trust":
		err = netlink.LinkSetVfTrust(link, index, value == "on")
	case "link-state", "policy":
		if value == "follow" {
			value = "auto"
		}
		for i, s := range linkStates {
			if s == value {
				err = netlink.LinkSetVfState(link, index, uint32(i))
			}
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return &cannotSetError{pf}
	}
	return err
}

// cannotSetError reports that the driver of an interface has no such attribute of VFs; it is an EOPNOTSUPP.
type cannotSetError struct{ pf string }

func (e *cannotSetError) Error() string { return "the driver of " + e.pf + " cannot set it" }
func (e *cannotSetError) Unwrap() error { return unix.EOPNOTSUPP }

// noLinks represents a captured tree, which has no kernel to query.
type noLinks struct{}

func (noLinks) There() bool                        { return false }
func (noLinks) Addresses(string) ([]string, error) { return nil, nil }
func (noLinks) Get(string, int, string) (string, error) {
	return "", errors.New("a captured tree has no VF attributes")
}
func (noLinks) Carried(string, int) (received, sent uint64, err error) {
	return 0, 0, errors.New("a captured tree counts no VF's bytes")
}
func (noLinks) Set(string, int, string, string) error {
	return errors.New("a captured tree has no VF attributes")
}

func (noLinks) Eswitch(string) (string, error) {
	return "", errors.New("a captured tree has no eswitch")
}
func (noLinks) SetEswitch(string, string) error {
	return errors.New("a captured tree has no eswitch")
}

// driverFirmware returns the firmware's version as reported by the driver of an interface (ethtool(8) -i), "" if it
// is not.
func driverFirmware(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return text.ASCII(unix.ByteSliceToString(info.Fw_version[:]))
}
