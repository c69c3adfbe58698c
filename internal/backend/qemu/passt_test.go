package qemu

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/sockpair"
)

// withoutSlirp returns the caps of a QEMU without a user network of its own.
func withoutSlirp(caps Caps) Caps {
	caps.Netdevs = slices.DeleteFunc(slices.Clone(caps.Netdevs), func(s string) bool { return s == "user" })
	return caps
}

// TestPasst: passt is used if QEMU has no user network, behind the filter, and in no jail.
func TestPasst(t *testing.T) {
	caps := withoutSlirp(capturedCaps(t, qemu72))
	if s := caps.seam(); slices.Contains(s.Links, backend.LinkUser) || !strings.Contains(s.Why[backend.CapUserNetwork], "install passt") {
		t.Errorf("without passt: %+v", s)
	}
	caps.Passt = "/usr/bin/passt"
	if s := caps.seam(); !slices.Contains(s.Links, backend.LinkUser) || !s.Filter {
		t.Errorf("with passt: %+v", s)
	}
	set := backend.Settings{Accel: host.TCG, Links: []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true}}}
	m, err := Build(onePlan(), set, caps)
	if err != nil {
		t.Fatal(err)
	}
	if args := strings.Join(m.Args(), " "); strings.Contains(args, "user,") || !strings.Contains(args, "-netdev stream,id=net0,") || len(m.later) != 0 || !slices.Equal(m.uplinks, []int{1}) {
		t.Errorf("%s; %v, %v", args, m.later, m.uplinks)
	}
	set.Strict = true
	if _, err := Build(onePlan(), set, caps); err == nil || !strings.Contains(err.Error(), "passt does not run in a jail") {
		t.Errorf("strict: %v", err)
	}
	set.Strict, set.Links[0].Filtered = false, false
	if _, err := Build(onePlan(), set, caps); err == nil || !strings.Contains(err.Error(), "no network of the kind user") {
		t.Errorf("without a filter: %v", err)
	}
	caps = capturedCaps(t, qemu72)
	if caps.Passt = "/usr/bin/passt"; caps.passt() != "" {
		t.Error("passt in place of QEMU's own")
	}
}

// TestPasstReal: the real passt answers at the address of the host. A VM whose passt ends is ended.
func TestPasstReal(t *testing.T) {
	caps := withoutSlirp(testCaps(t))
	if caps.Passt = findPasst(); caps.Passt == "" {
		needs(t, errors.New("this test needs passt"))
	}
	set := backend.Settings{Accel: host.TCG, Links: []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true}}}
	m, err := Build(onePlan(), set, caps)
	if err != nil {
		t.Fatal(err)
	}
	ours, card, err := sockpair.Conn("card")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer card.Close()
	filter, end, err := sockpair.Conn("filter")
	if err != nil {
		t.Fatal(err)
	}
	defer filter.Close()
	v, err := startIdle(t, m, card, end)
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	// An ARP request for 10.0.2.2.
	arp, err := hex.DecodeString("ffffffffffff" + "525400010203" + "0806" + "0001080006040001" + "525400010203" + "0a00020f" + "000000000000" + "0a000202")
	if err != nil {
		t.Fatal(err)
	}
	filter.SetDeadline(time.Now().Add(bootTimeout))
	if _, err := filter.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(arp))), arp...)); err != nil {
		t.Fatal(err)
	}
	var head [4]byte
	if _, err := io.ReadFull(filter, head[:]); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, min(binary.BigEndian.Uint32(head[:]), 2000))
	if _, err := io.ReadFull(filter, reply); err != nil || len(reply) < 42 || hex.EncodeToString(reply[20:22]) != "0002" || hex.EncodeToString(reply[28:32]) != "0a000202" {
		t.Errorf("%x, %v", reply, err)
	}
	v.helpers[0].kill()
	awaitEnd(t, v)
	if v.Err() == nil || !strings.Contains(v.Err().Error(), "its user network ended") {
		t.Errorf("%v", v.Err())
	}
}
