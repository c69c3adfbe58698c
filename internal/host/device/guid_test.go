package device

import (
	"encoding/binary"
	"regexp"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// newLink returns an RTM_NEWLINK message with GUIDs of two VFs, in the kernel's layout.
func newLink() []byte {
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST|unix.NLA_F_NESTED, nil)
	for vf, guid := range []uint64{0x02c9030000102030, 0} {
		info := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		info.AddRtAttr(nl.IFLA_VF_MAC, make([]byte, 36))
		b := binary.NativeEndian.AppendUint32(nil, uint32(vf))
		b = binary.NativeEndian.AppendUint64(append(b, 0, 0, 0, 0), guid)
		info.AddRtAttr(nl.IFLA_VF_IB_NODE_GUID, b)
		b = append([]byte(nil), b...)
		binary.NativeEndian.PutUint64(b[8:], guid+1)
		info.AddRtAttr(nl.IFLA_VF_IB_PORT_GUID, b)
	}
	name := nl.NewRtAttr(unix.IFLA_IFNAME, []byte("ib0\x00"))
	return append(append(make([]byte, unix.SizeofIfInfomsg), name.Serialize()...), list.Serialize()...)
}

func TestVFGUID(t *testing.T) {
	msg := newLink()
	for _, tt := range []struct {
		index int
		kind  uint16
		want  string
	}{
		{0, nl.IFLA_VF_IB_NODE_GUID, "02:c9:03:00:00:10:20:30"}, {0, nl.IFLA_VF_IB_PORT_GUID, "02:c9:03:00:00:10:20:31"},
		{1, nl.IFLA_VF_IB_NODE_GUID, noGUID}, {1, nl.IFLA_VF_IB_PORT_GUID, "00:00:00:00:00:00:00:01"},
		{2, nl.IFLA_VF_IB_NODE_GUID, ""}, {-1, nl.IFLA_VF_IB_NODE_GUID, ""},
	} {
		if got := vfGUID(msg, tt.index, tt.kind); got != tt.want {
			t.Errorf("VF %d, attribute %d: %q, want %q", tt.index, tt.kind, got, tt.want)
		}
	}
	for n := range msg { // truncated at any position
		vfGUID(msg[:n], 0, nl.IFLA_VF_IB_NODE_GUID)
	}
}

func FuzzVFGUID(f *testing.F) {
	f.Add(newLink(), 0)
	f.Add(newLink()[:40], 1)
	f.Add([]byte{}, 0)
	form := regexp.MustCompile(`^([0-9a-f]{2}:){7}[0-9a-f]{2}$`)
	f.Fuzz(func(t *testing.T, msg []byte, index int) {
		if g := vfGUID(msg, index, nl.IFLA_VF_IB_PORT_GUID); g != "" && !form.MatchString(g) {
			t.Fatalf("%q", g)
		}
	})
}
