package device

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// noGUID is the GUID of a VF for which none was set.
const noGUID = "00:00:00:00:00:00:00:00"

// netlinkGUID queries a GUID of a VF from the kernel (IFLA_VF_IB_NODE_GUID or IFLA_VF_IB_PORT_GUID), which the
// netlink library sets but does not read; "" if the driver does not report it.
func netlinkGUID(link netlink.Link, index int, kind uint16) (string, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link.Attrs().Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return "", fmt.Errorf("%s: %w", link.Attrs().Name, err)
	}
	for _, m := range msgs {
		if g := vfGUID(m, index, kind); g != "" {
			return g, nil
		}
	}
	return "", nil
}

// vfGUID finds a GUID of VF number index in an RTM_NEWLINK message (struct ifinfomsg and its attributes); "" if it is
// not in it. The kernel's nesting is: IFLA_VFINFO_LIST, IFLA_VF_INFO, and struct ifla_vf_guid: the VF's number, four
// unused bytes, and the GUID as a number (if_link.h).
func vfGUID(msg []byte, index int, kind uint16) string {
	if len(msg) < unix.SizeofIfInfomsg {
		return ""
	}
	var guid string
	eachAttr(msg[unix.SizeofIfInfomsg:], unix.IFLA_VFINFO_LIST, func(list []byte) {
		eachAttr(list, nl.IFLA_VF_INFO, func(info []byte) {
			eachAttr(info, kind, func(v []byte) {
				if len(v) < 16 || uint64(binary.NativeEndian.Uint32(v)) != uint64(index) {
					return
				}
				guid = net.HardwareAddr(binary.BigEndian.AppendUint64(nil, binary.NativeEndian.Uint64(v[8:]))).String()
			})
		})
	})
	return guid
}

// eachAttr calls f with the values of the attributes of a kind; an attribute whose length exceeds b ends the list.
func eachAttr(b []byte, kind uint16, f func([]byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		if binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			f(b[unix.SizeofRtAttr:size])
		}
		b = b[min(len(b), (size+3)&^3):]
	}
}
