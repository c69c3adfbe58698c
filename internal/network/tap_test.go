package network

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"nearmetal/internal/journal"

	"golang.org/x/sys/unix"
)

// inNetns runs f as root in a new network namespace, on one thread that is then thrown away. Without the right to make
// a namespace the test fails in CI and is skipped elsewhere.
func inNetns(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	done := make(chan struct{})
	var skip error
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if skip = unix.Unshare(unix.CLONE_NEWNET); skip == nil {
			if _, err := os.Stat("/dev/net/tun"); err != nil {
				skip = err
				return
			}
			f(t)
		}
	}()
	<-done
	if skip != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("taps and bridges need root, network namespaces and /dev/net/tun: %v", skip)
		}
		t.Skipf("taps and bridges need root, network namespaces and /dev/net/tun: %v", skip)
	}
}

func TestBridgeAndTaps(t *testing.T) {
	inNetns(t, func(t *testing.T) {
		j, err := journal.Open(filepath.Join(t.TempDir(), "journal"))
		if err != nil {
			t.Error(err)
			return
		}
		defer j.Close()
		id := [16]byte{0xab, 1, 2, 3, 4, 5}
		br, err := CreateBridge(id, j)
		if err != nil {
			t.Error(err)
			return
		}
		if br != "nm-ab0102030405" {
			t.Errorf("the bridge is called %s", br)
		}
		if _, err := CreateBridge(id, j); err == nil {
			t.Error("the same bridge was made twice")
		}
		var taps [2]*os.File
		for i := range taps {
			if taps[i], err = OpenTap(br, MaxMTU); err != nil {
				t.Error(err)
				return
			}
			defer taps[i].Close()
			ifi, err := net.InterfaceByName(taps[i].Name())
			if err != nil || ifi.MTU != MaxMTU || ifi.Flags&net.FlagUp == 0 {
				t.Errorf("%s: %+v, %v", taps[i].Name(), ifi, err)
			}
		}
		// A frame written to one tap is read from the other, as large as the MTU allows.
		const vnetHeader = 10 // struct virtio_net_hdr
		for _, n := range []int{60, MaxMTU + ethernetHeader} {
			sent := frame(broadcast, []byte{0x52, 1, 1, 1, 1, 1}, n, byte(n))[lengthLen:]
			if _, err := taps[0].Write(append(make([]byte, vnetHeader), sent...)); err != nil {
				t.Error(err)
				return
			}
			buf := make([]byte, 1<<17)
			for { // skips the kernel's own IPv6 frames
				got, err := taps[1].Read(buf)
				if err != nil {
					t.Error(err)
					return
				}
				if string(buf[vnetHeader:got]) == string(sent) {
					break
				}
			}
		}
		// A tap is removed with its descriptor, a bridge by the journal.
		name := taps[1].Name()
		taps[1].Close()
		if _, err := net.InterfaceByName(name); err == nil {
			t.Errorf("%s is still there", name)
		}
		if did, err := j.UndoAll(); err != nil || len(did) != 1 {
			t.Errorf("undone: %v, %v", did, err)
		}
		if _, err := net.InterfaceByName(br); err == nil {
			t.Errorf("%s is still there", br)
		}
	})
}

type refusing struct{ error }

func (r refusing) Record(journal.Change) (int, error) { return 0, r.error }

func TestBridgeIsNotMadeUnrecorded(t *testing.T) {
	inNetns(t, func(t *testing.T) {
		full := errors.New("disk full")
		id := [16]byte{0xcd}
		if _, err := CreateBridge(id, refusing{full}); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
		if ifs, _ := net.Interfaces(); len(ifs) != 1 {
			t.Errorf("interfaces besides lo: %v", ifs)
		}
	})
}

func TestTapRefuses(t *testing.T) {
	inNetns(t, func(t *testing.T) {
		for _, br := range []string{"lo", "nobridge", "", "../lo", "a-name-too-long-for-linux"} {
			if f, err := OpenTap(br, 1500); err == nil {
				f.Close()
				t.Errorf("a tap on %q was made", br)
			}
		}
		for _, mtu := range []int{0, MinMTU - 1, MaxMTU + 1, -1} {
			if f, err := OpenTap("lo", mtu); err == nil {
				f.Close()
				t.Errorf("a tap with MTU %d was made", mtu)
			}
		}
	})
}

func TestPair(t *testing.T) {
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a.Write([]byte("frame"))
	a.Close()
	if got, err := io.ReadAll(b); string(got) != "frame" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUpOfNone(t *testing.T) {
	s, err := control()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := up(s, "nm-none"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is not there was brought up: %v", err)
	}
}
