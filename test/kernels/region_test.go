package kernels

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand"
	"sync/atomic"
	"testing"
	"unsafe"

	"nearmetal/internal/region"

	"golang.org/x/sys/unix"
)

// few makes the measurements short: the tests ask whether they work.
var few = []string{"--iterations", "50:2", "--warmup", "5:1", "--bandwidth", "4KiB:1MiB"}

func program(name string) string { return regionPrograms + "/" + name }

// newRegion makes a region as nearmetal does, and returns it, a path by which another
// process opens it, and its memory.
func newRegion(t *testing.T, o region.Options) (*region.Region, string, []byte) {
	t.Helper()
	o.HostNode = -1
	r, err := region.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	mem, err := unix.Mmap(int(r.File.Fd()), 0, int(o.SizeBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return r, fmt.Sprintf("/proc/%d/fd/%d", unix.Getpid(), r.File.Fd()), mem
}

type pingpong struct {
	Program      string
	LatencyUs    []struct{ Bytes, Iterations, Mean, Min, Median, P99 float64 }
	BandwidthMBs []struct{ Bytes, Iterations, Mean, Min, Median, P99 float64 }
}

func TestPingpongFork(t *testing.T) {
	r := run(t, program("region_pingpong"), append(few, "--fork", "--json")...).want(t, 0)
	var doc pingpong
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	if len(doc.LatencyUs) != 14 || len(doc.BandwidthMBs) != 9 || doc.LatencyUs[13].Bytes != 4096 || doc.BandwidthMBs[8].Bytes != 1<<20 {
		t.Errorf("%+v", doc)
	}
	for _, row := range append(doc.LatencyUs, doc.BandwidthMBs...) {
		// All of a row is from the same samples; six digits of each are printed.
		if row.Mean <= 0 || row.Min > row.Median || row.Min > row.Mean*1.00001 {
			t.Errorf("%+v", row)
		}
	}
	run(t, program("region_pingpong"), append(few, "--fork", "--only", "latency")...).want(t, 0, "# latency: half a round trip, us")
}

// Two processes that share nothing but a region of the Go side's, plain and devdax, twice
// in a row: what the first run leaves in it does not disturb the second.
func TestPingpongTwoProcesses(t *testing.T) {
	for _, o := range []region.Options{{SizeBytes: 1 << 20}, {SizeBytes: 16 << 20, Devdax: true}} {
		_, path, _ := newRegion(t, o)
		for range 2 {
			a := finish(t, program("region_pingpong"), append(few, "--region", path, "--role", "a")...)
			b := finish(t, program("region_pingpong"), "--region", path, "--role", "b")
			a().want(t, 0, "# bandwidth", " 1048576 ")
			b().want(t, 0)
		}
		for range 30 { // in quick succession: each meets what the one before left
			a := finish(t, program("region_atomics"), "--region", path, "--role", "a", "--operations", "10", "--rounds", "10")
			b := finish(t, program("region_atomics"), "--region", path, "--role", "b")
			a().want(t, 0)
			b().want(t, 0)
		}
		a := finish(t, program("region_atomics"), "--region", path, "--role", "a", "--operations", "20000", "--rounds", "200")
		b := finish(t, program("region_atomics"), "--region", path, "--role", "b")
		a().want(t, 0, "add              0        40000")
		b().want(t, 0)
	}
}

// Only the scratch area is written: the header and the layout area belong to others.
func TestScratchOnly(t *testing.T) {
	reg, path, mem := newRegion(t, region.Options{SizeBytes: 4 << 20})
	h := reg.Header
	for i := h.LayoutOffset; i < h.LayoutOffset+h.LayoutBytes; i++ {
		mem[i] = byte(i * 7)
	}
	before := string(mem[:h.ScratchOffset])
	a := finish(t, program("region_pingpong"), append(few, "--region", path, "--role", "a")...)
	b := finish(t, program("region_pingpong"), "--region", path, "--role", "b")
	a().want(t, 0)
	b().want(t, 0)
	if string(mem[:h.ScratchOffset]) != before {
		t.Error("bytes before the scratch area changed")
	}
}

func TestAtomics(t *testing.T) {
	r := run(t, program("region_atomics"), "--fork", "--json", "--operations", "100000", "--rounds", "1000").want(t, 0)
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	for _, name := range []string{"add", "cas", "fence"} {
		if c := doc[name].(map[string]any); c["lost"].(float64) != 0 {
			t.Errorf("%s: %v", name, c)
		}
	}
}

func TestMissingPeer(t *testing.T) {
	_, path, _ := newRegion(t, region.Options{SizeBytes: 1 << 20})
	for _, p := range []string{"region_pingpong", "region_atomics"} {
		run(t, program(p), "--region", path, "--role", "a", "--timeout", "0.1").want(t, 1, "side b did not answer within 0.1 s")
		run(t, program(p), "--region", path, "--role", "b", "--timeout", "0.1").want(t, 1, "side a did not answer within 0.1 s")
	}
}

func TestBadRegions(t *testing.T) {
	_, path, mem := newRegion(t, region.Options{SizeBytes: 1 << 20})
	for _, p := range []string{"region_pingpong", "region_atomics"} {
		run(t, program(p), "--role", "a", "--region", "/nonexistent").want(t, 1, "/nonexistent")
		run(t, program(p), "--role", "a", "--region", "/dev/zero").want(t, 1, "/dev/zero")
		run(t, program(p), "--role", "a", "--region", "/proc/self/exe").want(t, 1)
		binary.LittleEndian.PutUint64(mem[16:], 1<<30) // the header's size
		run(t, program(p), "--role", "a", "--region", path).want(t, 1, "checksum")
		binary.LittleEndian.PutUint64(mem[16:], 1<<20)
	}
}

// Side a asks for what it likes; b does not follow it out of its buffers.
func TestHostileParameters(t *testing.T) {
	reg, path, mem := newRegion(t, region.Options{SizeBytes: 1 << 20})
	scratch := mem[reg.Header.ScratchOffset:]
	// struct peer_words in kernels/peer.h: nonce, echo, 8 parameters; b's is 192 bytes on.
	word := func(i int) *uint64 { return (*uint64)(unsafe.Pointer(&scratch[8*i])) }
	for _, bad := range [][8]uint64{
		{0, 1 << 40, 4096, 8192, 10, 1, 0, 3},
		{0, 1 << 18, 4096, 8192, 10, 1, 0, 3},
		{8, 4, 4096, 8192, 10, 1, 0, 3},
		{0, 8, 0, 8192, 10, 1, 0, 3},
		{0, 8, 4096, 1 << 60, 10, 1, 0, 3},
		{0, 8, 4096, 8192, 1 << 61, 1, 0, 3},
		{0, 8, 4096, 8192, 0, 1, 0, 3},
		{0, 8, 4096, 8192, 10, 1 << 61, 0, 3},
		{0, 8, 4096, 8192, 10, 1, ^uint64(0), 3},
	} {
		atomic.StoreUint64(word(0), 0)
		atomic.StoreUint64(word(1), 0)
		clear(scratch[192:400])
		for i, v := range bad {
			atomic.StoreUint64(word(2+i), v)
		}
		b := finish(t, program("region_pingpong"), "--region", path, "--role", "b", "--timeout", "30")
		atomic.StoreUint64(word(0), 42)
		for atomic.LoadUint64(word(24)) == 0 || atomic.LoadUint64(word(25)) != 42 {
			unix.Nanosleep(&unix.Timespec{Nsec: 100000}, nil)
			atomic.StoreUint64(word(1), atomic.LoadUint64(word(24)))
		}
		atomic.StoreUint64(word(1), atomic.LoadUint64(word(24)))
		b().want(t, 1, "out of range")
	}
}

// Whatever happens to the words while a side runs, it ends by itself: with an error, or,
// if luck will have it, without.
func TestHostilePeer(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, p := range []string{"region_pingpong", "region_atomics"} {
		for round := range 6 {
			reg, path, mem := newRegion(t, region.Options{SizeBytes: 1 << 20})
			h := reg.Header
			scratch := mem[h.ScratchOffset : h.ScratchOffset+h.ScratchBytes]
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
					}
					// The first pages hold all control words.
					v := []uint64{0, 1, ^uint64(0), rng.Uint64(), uint64(rng.Intn(1000))}[rng.Intn(5)]
					at := []int{rng.Intn(16), 48 + rng.Intn(2), 512 + rng.Intn(64), len(scratch)/16 + rng.Intn(64)}[rng.Intn(4)]
					*(*uint64)(unsafe.Pointer(&scratch[8*at])) = v
					if rng.Intn(50) == 0 {
						unix.Nanosleep(&unix.Timespec{Nsec: 20000}, nil)
					}
				}
			}()
			a := finish(t, program(p), "--region", path, "--role", "a", "--timeout", "0.3")
			b := finish(t, program(p), "--region", path, "--role", "b", "--timeout", "0.3")
			for side, r := range map[string]result{"a": a(), "b": b()} {
				if r.code != 0 && r.code != 1 {
					t.Errorf("round %d, %s, side %s: exit status %d\n%s%s", round, p, side, r.code, r.out, r.err)
				}
			}
			close(stop)
			<-stopped
		}
	}
}

func TestRegionUsage(t *testing.T) {
	common := [][]string{
		{}, {"--role", "c"}, {"--role", "a", "--fork"}, {"--fork", "--cpus", "x"}, {"--fork", "--cpus", "1,"},
		{"--fork", "--cpus", "-1"}, {"--fork", "--timeout", "0"}, {"--nonsense"}, {"--role"}, {"--fork", "extra"},
	}
	usage(t, program("region_pingpong"), append(common, []string{"--fork", "--latency", "0:1MiB"},
		[]string{"--fork", "--bandwidth", "0:8"}, []string{"--fork", "--only", "x"}, []string{"--fork", "--iterations", "0"}))
	usage(t, program("region_atomics"), append(common, []string{"--fork", "--operations", "0"}, []string{"--fork", "--rounds", "x"}))
	run(t, program("region_pingpong"), "--fork", "--cpus", "1023").want(t, 1, "cannot run on CPU 1023")
}
