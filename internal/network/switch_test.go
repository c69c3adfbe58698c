package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testSwitch returns a switch with n ports, and the ends that the QEMUs would have.
func testSwitch(t testing.TB, n int) (*Switch, []*os.File, []Address) {
	t.Helper()
	var vms []string
	for i := range n {
		vms = append(vms, fmt.Sprintf("vm%d", i))
	}
	addrs, err := Addresses([16]byte{9, 9, 9}, netip.MustParsePrefix("10.77.0.0/16"), vms)
	if err != nil {
		t.Fatal(err)
	}
	s, ends, err := NewSwitch(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range ends {
			f.Close()
		}
		s.Close()
	})
	return s, ends, addrs
}

var broadcast = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame returns a frame of n bytes, preceded by its length.
func frame(dst, src []byte, n int, fill byte) []byte {
	b := make([]byte, lengthLen+n)
	binary.BigEndian.PutUint32(b, uint32(n))
	copy(b[lengthLen:], dst)
	copy(b[lengthLen+6:], src)
	for i := lengthLen + ethernetHeader; i < len(b); i++ {
		b[i] = fill + byte(i)
	}
	return b
}

func write(t testing.TB, f *os.File, b []byte) {
	t.Helper()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly want from f.
func expect(t testing.TB, f *os.File, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(f, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got a frame that begins %x, want %x", got[:min(32, len(got))], want[:min(32, len(want))])
	}
}

func TestSwitchUnicastAndBroadcast(t *testing.T) {
	s, ends, a := testSwitch(t, 3)
	small := frame(a[1].MAC, a[0].MAC, ethernetHeader, 1)
	large := frame(a[1].MAC, a[0].MAC, MaxMTU+ethernetHeader, 2)
	all := frame(broadcast, a[0].MAC, 60, 3)
	to2 := frame(a[2].MAC, a[0].MAC, 1500, 4)
	go ends[0].Write(bytes.Join([][]byte{small, small, large, all, to2, to2, small}, nil))
	expect(t, ends[1], bytes.Join([][]byte{small, small, large, all, small}, nil))
	expect(t, ends[2], bytes.Join([][]byte{all, to2, to2}, nil))
	// A frame that arrives in pieces is forwarded unchanged.
	back := frame(a[0].MAC, a[1].MAC, 1000, 5)
	for _, b := range back {
		write(t, ends[1], []byte{b})
	}
	expect(t, ends[0], back)
	if st := s.Stats()[0]; st.FramesIn != 7 || st.Refused != 0 || st.FramesOut != 1 || st.Err != nil {
		t.Errorf("%+v", st)
	}
}

// Frames that a VM may not send do not reach another VM.
func TestSwitchRefuses(t *testing.T) {
	s, ends, a := testSwitch(t, 3)
	for _, b := range [][]byte{
		frame(a[1].MAC, a[2].MAC, 60, 0),                    // another VM's MAC
		frame(broadcast, a[2].MAC, 60, 0),                   // another VM's MAC, to all
		frame(a[1].MAC, broadcast, 60, 0),                   // from a multicast MAC
		frame([]byte{0x52, 0, 0, 0, 0, 9}, a[0].MAC, 60, 0), // to nobody
		frame(a[0].MAC, a[0].MAC, 60, 0),                    // to itself
		{0, 0, 0, 0},                                        // empty
		frame(a[1].MAC, a[0].MAC, 13, 0),                    // shorter than its header
	} {
		write(t, ends[0], b)
	}
	good := frame(a[1].MAC, a[0].MAC, 60, 7)
	write(t, ends[0], good)
	expect(t, ends[1], good)
	if st := s.Stats(); st[0].Refused != 7 || st[0].FramesIn != 1 || st[2].FramesOut != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSwitchHostileLength(t *testing.T) {
	for _, n := range []uint32{maxFrame + 1, 1 << 31, 1<<32 - 1} {
		s, ends, a := testSwitch(t, 3)
		last := frame(a[1].MAC, a[0].MAC, 60, 7)
		write(t, ends[0], binary.BigEndian.AppendUint32(last, n))
		expect(t, ends[1], last)
		if _, err := ends[0].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("length %d: the port is still open (%v)", n, err)
		}
		if err := s.Stats()[0].Err; !errors.Is(err, ErrFrameLength) {
			t.Errorf("length %d: the port ended with %v", n, err)
		}
		// The other ports still work.
		good := frame(a[2].MAC, a[1].MAC, 60, 8)
		write(t, ends[1], good)
		expect(t, ends[2], good)
	}
}

// A VM that does not read loses its own frames; the others lose none and do not wait.
func TestSwitchFullQueue(t *testing.T) {
	s, ends, a := testSwitch(t, 3)
	stuck := frame(a[1].MAC, a[0].MAC, 60000, 1)
	good := frame(a[2].MAC, a[0].MAC, 60000, 2)
	for i := 0; s.Stats()[1].Dropped == 0; i++ {
		if i > 1000 {
			t.Fatal("1000 frames of 60000 bytes were queued")
		}
		write(t, ends[0], stuck)
		write(t, ends[0], good)
		expect(t, ends[2], good)
	}
	if d := s.Stats()[2].Dropped; d != 0 {
		t.Errorf("%d frames to a VM that reads were dropped", d)
	}
	// When the VM reads again it finds whole frames.
	out := s.Stats()[1].FramesOut
	for range out {
		expect(t, ends[1], stuck)
	}
	write(t, ends[0], stuck)
	expect(t, ends[1], stuck)
}

func TestSwitchVMGone(t *testing.T) {
	s, ends, a := testSwitch(t, 3)
	ends[1].Close()
	// The port's reader notices the port's end; until then frames to it may still be accepted.
	good := frame(broadcast, a[0].MAC, 1000, 2)
	for {
		write(t, ends[0], good)
		expect(t, ends[2], good)
		if err := s.Stats()[1].Err; err != nil {
			if err != io.EOF {
				t.Errorf("the port ended with %v", err)
			}
			return
		}
	}
}

func TestSwitchClose(t *testing.T) {
	s, ends, a := testSwitch(t, 2)
	for range 100 { // some frames are still queued
		write(t, ends[0], frame(a[1].MAC, a[0].MAC, 9000, 1))
	}
	s.Close()
	s.Close()
	for _, f := range ends {
		if _, err := io.Copy(io.Discard, f); err != nil && !errors.Is(err, os.ErrClosed) && !isReset(err) {
			t.Error(err)
		}
	}
}

func TestSwitchBadAddresses(t *testing.T) {
	_, _, a := testSwitch(t, 2)
	for _, bad := range [][]Address{{a[0], a[0]}, {{Name: "x"}}, {{Name: "x", MAC: broadcast}}} {
		if _, _, err := NewSwitch(bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// A frame allocates nothing.
func TestSwitchAllocations(t *testing.T) {
	_, ends, a := testSwitch(t, 3)
	uni, all := frame(a[1].MAC, a[0].MAC, 1500, 1), frame(broadcast, a[0].MAC, 1500, 1)
	buf := make([]byte, len(uni)+len(all))
	n := testing.AllocsPerRun(200, func() {
		ends[0].Write(uni)
		ends[0].Write(all)
		io.ReadFull(ends[1], buf)
		io.ReadFull(ends[2], buf[:len(all)])
	})
	if n > 0 {
		t.Errorf("%v allocations for two frames", n)
	}
}

// Regardless of what one VM writes, the others receive whole frames from its MAC, and keep working.
func FuzzSwitch(f *testing.F) {
	_, _, a := testSwitch(f, 3)
	f.Add(frame(a[1].MAC, a[0].MAC, 60, 1))
	f.Add(append(frame(broadcast, a[0].MAC, 60, 1), frame(a[2].MAC, a[0].MAC, 20, 1)...))
	f.Add(append(frame(a[1].MAC, a[2].MAC, 60, 1), 0, 1, 0, 0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		_, ends, a := testSwitch(t, 3)
		write(t, ends[0], b)
		unix.Shutdown(int(ends[0].Fd()), unix.SHUT_WR)
		// The end of port 0 shows that all of b was read.
		io.Copy(io.Discard, ends[0])
		last := frame(a[1].MAC, a[2].MAC, 77, 1)
		write(t, ends[2], last)
		for got := make([]byte, maxFrame); ; {
			if _, err := io.ReadFull(ends[1], got[:lengthLen]); err != nil {
				t.Fatal(err)
			}
			n := binary.BigEndian.Uint32(got)
			if n < ethernetHeader || n > maxFrame {
				t.Fatalf("a frame of %d bytes came out", n)
			}
			if _, err := io.ReadFull(ends[1], got[:n]); err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got[:n], last[lengthLen:]) {
				break
			}
			if !bytes.Equal(got[6:12], a[0].MAC) {
				t.Fatalf("a frame from %x came out", got[6:12])
			}
			if got[0]&1 == 0 && !bytes.Equal(got[:6], a[1].MAC) {
				t.Fatalf("a frame to %x came out", got[:6])
			}
		}
	})
}

// BenchmarkSwitchLatency measures half a round trip between two ports with small frames.
func BenchmarkSwitchLatency(b *testing.B) {
	_, ends, a := testSwitch(b, 2)
	there, back := frame(a[1].MAC, a[0].MAC, 60, 1), frame(a[0].MAC, a[1].MAC, 60, 1)
	go func() {
		buf := make([]byte, len(there))
		for {
			if _, err := io.ReadFull(ends[1], buf); err != nil {
				return
			}
			ends[1].Write(back)
		}
	}()
	buf := make([]byte, len(back))
	b.ResetTimer()
	start := time.Now()
	for range b.N {
		ends[0].Write(there)
		io.ReadFull(ends[0], buf)
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N)/2, "ns/half-trip")
}

// BenchmarkSwitchThroughput measures one direction between two ports without loss: at most 8 frames are in flight.
func BenchmarkSwitchThroughput(b *testing.B) {
	for _, n := range []int{1514, 9014, MaxMTU + ethernetHeader} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, ends, a := testSwitch(b, 2)
			there := frame(a[1].MAC, a[0].MAC, n, 1)
			slots := make(chan struct{}, 8)
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, len(there))
				for range b.N {
					if _, err := io.ReadFull(ends[1], buf); err != nil {
						b.Error(err)
						return
					}
					<-slots
				}
			}()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				slots <- struct{}{}
				ends[0].Write(there)
			}
			<-done
			if d := s.Stats()[1].Dropped; d != 0 {
				b.Errorf("%d frames were dropped", d)
			}
		})
	}
}

func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) }
