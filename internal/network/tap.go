package network

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"nearmetal/internal/journal"

	"golang.org/x/sys/unix"
)

// Recorder records a change to the host before it is made; *journal.Journal is one.
type Recorder interface {
	Record(journal.Change) (int, error)
}

// CreateBridge makes a bridge for a cluster, up and without an address, and returns its name. It first records
// journal.Link(name), so that undoing the record removes the bridge. CreateBridge needs root.
func CreateBridge(cluster [16]byte, rec Recorder) (string, error) {
	// 48 random bits make the name unique. journal deletes only nm-… interfaces.
	name := "nm-" + hex.EncodeToString(cluster[:6])
	if _, err := net.InterfaceByName(name); err == nil {
		return "", fmt.Errorf("network: there is a bridge %s already", name)
	}
	if _, err := rec.Record(journal.Link(name)); err != nil {
		return "", err
	}
	s, err := control()
	if err != nil {
		return "", err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCBRADDBR, ifr); err != nil {
		return "", fmt.Errorf("network: cannot make the bridge %s%s: %w", name, needsRoot(err), err)
	}
	return name, up(s, name)
}

// OpenTap makes a tap device on a bridge and returns its descriptor, for QEMU's `-netdev tap,fd=N`. The kernel removes
// the device when its last descriptor is closed, so that nothing is left behind. mtu is in bytes. OpenTap needs root.
func OpenTap(bridge string, mtu int) (*os.File, error) {
	if err := CheckMTU(mtu); err != nil {
		return nil, err
	}
	if err := CheckBridge(bridge); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil, errors.New("network: this kernel has no tap devices; as root: modprobe tun")
	}
	if err != nil {
		return nil, fmt.Errorf("network: cannot open /dev/net/tun%s: %w", needsRoot(err), err)
	}
	name, err := addTap(fd, bridge, mtu)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func addTap(fd int, bridge string, mtu int) (string, error) {
	ifr, err := unix.NewIfreq("nm-tap%d") // the kernel inserts the first free number
	if err != nil {
		return "", err
	}
	// IFF_VNET_HDR lets QEMU pass on the guest's segmentation and checksum offloads.
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return "", fmt.Errorf("network: cannot make a tap device%s: %w", needsRoot(err), err)
	}
	name := ifr.Name()
	s, err := control()
	if err != nil {
		return "", err
	}
	defer unix.Close(s)
	if ifr, err = unix.NewIfreq(name); err != nil {
		return "", err
	}
	ifr.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(s, unix.SIOCSIFMTU, ifr); err != nil {
		return "", fmt.Errorf("network: cannot set the MTU of %s to %d: %w", name, mtu, err)
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	if ifr, err = unix.NewIfreq(bridge); err != nil {
		return "", err
	}
	ifr.SetUint32(uint32(i.Index))
	if err := unix.IoctlIfreq(s, unix.SIOCBRADDIF, ifr); err != nil {
		return "", fmt.Errorf("network: cannot put %s on the bridge %s%s: %w", name, bridge, needsRoot(err), err)
	}
	return name, up(s, name)
}

// vnetHeader is the size in bytes of the header before each frame of a tap with IFF_VNET_HDR (struct virtio_net_hdr).
// Zeros mean that the frame is whole and its checksums are right.
const vnetHeader = 10

// CarryTap forwards frames between a tap made by OpenTap and a stream (4 bytes of length, big-endian, then the frame)
// until either ends, and closes both. The kernel sends whole frames only, since no offload is enabled (TUNSETOFFLOAD).
func CarryTap(end io.ReadWriteCloser, tap *os.File) error {
	file, err := pollable(tap)
	if err != nil {
		end.Close()
		return err
	}
	done := make(chan struct{}, 2)
	carry := func(frame func(buf []byte) error) {
		buf := make([]byte, vnetHeader+lengthLen+maxFrame)
		for frame(buf) == nil {
		}
		file.Close()
		end.Close()
		done <- struct{}{}
	}
	go carry(func(buf []byte) error {
		// The length is written over the end of the header.
		n, err := file.Read(buf[lengthLen:])
		if err != nil || n < vnetHeader {
			return errors.Join(err, io.EOF)
		}
		binary.BigEndian.PutUint32(buf[vnetHeader:], uint32(n-vnetHeader))
		_, err = end.Write(buf[vnetHeader : lengthLen+n])
		return err
	})
	go carry(func(buf []byte) error {
		if _, err := io.ReadFull(end, buf[:lengthLen]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(buf)
		if n > maxFrame {
			return ErrFrameLength
		}
		clear(buf[:vnetHeader])
		frame := buf[:vnetHeader+int(n)]
		if _, err := io.ReadFull(end, frame[vnetHeader:]); err != nil {
			return err
		}
		// A bridge that is down or rejects a frame loses the frame, as a card does.
		if _, err := file.Write(frame); errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	})
	<-done
	<-done
	return nil
}

// CheckBridge returns an error unless name is a bridge of this host.
func CheckBridge(name string) error {
	if _, err := unix.NewIfreq(name); err != nil || name == "" || name != filepath.Base(name) {
		return fmt.Errorf("network: %q is not the name of an interface", name)
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("network: there is no bridge %s; make it (ip link add %s type bridge), start the network of libvirt's that has it (virsh net-start), or name none", name, name)
	}
	s, err := control()
	if err != nil {
		return err
	}
	defer unix.Close(s)
	// The kernel is queried, rather than /sys, which may show another network namespace.
	if d, err := unix.IoctlGetEthtoolDrvinfo(s, ifi.Name); err != nil || unix.ByteSliceToString(d.Driver[:]) != "bridge" {
		return fmt.Errorf("network: %s is not a bridge", name)
	}
	return nil
}

// control opens a socket for interface ioctls (netdevice(7)).
func control() (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("network: %w", err)
	}
	return s, nil
}

func up(s int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err = unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err == nil {
		ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
	}
	if err != nil {
		return fmt.Errorf("network: cannot bring %s up: %w", name, err)
	}
	return nil
}

func needsRoot(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return " (this needs root: leave `type: bridge` out, or run as root)"
	}
	return ""
}
