package wiring

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/network"
	"nearmetal/internal/spec"
)

// BenchmarkOverlay measures one host of a job of many: the cost to its supervisor until the others are joined, and
// after a reset of all its connections. The others are real ends of the overlay in other processes, without VMs and
// joined only to this host, so that they fit on one machine. All share one address, so that their connections share
// the limit for one source. Run it with `make bench-overlay`.
func BenchmarkOverlay(b *testing.B) {
	for _, hosts := range []int{16, 64, 256, 1000} {
		b.Run(fmt.Sprint(hosts, " hosts"), func(b *testing.B) { benchOverlay(b, hosts, 0) })
	}
	// The last two hosts are faulty: one accepts connections and never answers, one does not exist.
	b.Run("1000 hosts, one silent, one dead", func(b *testing.B) { benchOverlay(b, 1000, 2) })
}

// overlayOf returns a job of that many hosts on this machine, of which self is one.
func overlayOf(hosts, self int) Overlay {
	o := Overlay{Secret: bytes.Repeat([]byte{byte(hosts), 7}, 16), Self: self, Ports: [2]int{10000, 32000}}
	for i := range hosts {
		o.Hosts = append(o.Hosts, OverlayHost{Name: fmt.Sprint("n", i), Addr: "127.0.0.1", VMs: []string{fmt.Sprintf("n%d-vm0", i)}})
	}
	return o
}

// overlayPeers is the environment variable that makes a process the hosts FROM to TO of HOSTS, except the last BAD.
const overlayPeers = "NEARMETAL_TEST_OVERLAY_PEERS"

// TestOverlayPeers runs the other hosts of BenchmarkOverlay, until its input ends.
func TestOverlayPeers(t *testing.T) {
	var from, to, hosts, bad int
	if _, err := fmt.Sscan(os.Getenv(overlayPeers), &from, &to, &hosts, &bad); err != nil {
		t.Skip("for other tests")
	}
	for self := from; self < to; self++ {
		if self >= hosts-bad {
			if self == hosts-bad { // the silent host
				if err := silent(hosts, self); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		o := overlayOf(hosts, self)
		options := network.OverlayOptions{Secret: o.Secret, Self: self, LowPort: o.Ports[0], HighPort: o.Ports[1]}
		for _, h := range o.Hosts {
			options.Hosts = append(options.Hosts, network.OverlayHost{Name: h.Name, Addr: h.Addr})
		}
		board := channel.NewSwitchboard()
		options.Serve = func(host int, kind string, l *network.Link) {
			if kind == kindFrames {
				io.Copy(io.Discard, l)
			} else if m, err := board.Client(l, channel.Fields{{Key: "cluster", Value: "overlay"}}); err == nil {
				<-m.Done()
			}
		}
		if _, err := network.NewOverlay(options); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("overlay: ready")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // without cleanup, like a killed host
}

// silent accepts connections on the port that a host would listen on and never answers, like a hung host.
func silent(hosts, self int) error {
	o := overlayOf(hosts, self)
	options := network.OverlayOptions{Secret: o.Secret, Self: self, LowPort: o.Ports[0], HighPort: o.Ports[1]}
	for _, h := range o.Hosts {
		options.Hosts = append(options.Hosts, network.OverlayHost{Name: h.Name, Addr: h.Addr})
	}
	m, err := network.NewOverlay(options)
	if err != nil {
		return err
	}
	addr := m.Addr()
	m.Close()
	hanging, err = net.Listen("tcp", addr.String())
	return err
}

var hanging net.Listener // kept so that it stays open

// startPeers starts the hosts from number 1 on, in four processes.
func startPeers(b *testing.B, hosts, bad int) {
	b.Helper()
	const processes = 4
	var outs []*bufio.Reader
	for i := range processes {
		from, to := 1+(hosts-1)*i/processes, 1+(hosts-1)*(i+1)/processes
		cmd := exec.Command(os.Args[0], "-test.run=^TestOverlayPeers$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d %d", overlayPeers, from, to, hosts, bad))
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { in.Close(); cmd.Wait() })
		outs = append(outs, bufio.NewReader(out))
	}
	for _, out := range outs {
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				b.Fatal("the other hosts did not start: ", line, err)
			}
			if strings.Contains(line, "overlay: ready") {
				break
			}
		}
	}
}

func benchOverlay(b *testing.B, hosts, bad int) {
	n := spec.Network{Type: "auto", Subnet: "10.77.0.0/16", MTU: 1500}
	var joined, again time.Duration
	var memory, files, routines, cpu float64
	for range b.N {
		startPeers(b, hosts, bad)
		debug.FreeOSMemory()
		rss, fds, gos, used := resident(), descriptors(), runtime.NumGoroutine(), cpuTime()
		own := overlayOf(hosts, 0)
		w, err := Make(Request{Network: n, ID: [16]byte{1}, Names: own.Hosts[0].VMs, Overlay: &own})
		if err != nil {
			b.Fatal(err)
		}
		c := benchOwned(b, own.Hosts[0].VMs[0])
		begin := time.Now()
		if err := w.Joined.Start(c, channel.NewSwitchboard()); err != nil {
			b.Fatal(err)
		}
		await := func() time.Duration {
			for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if whole(c, hosts-bad) {
					return time.Since(begin)
				}
				if time.Now().After(end) {
					b.Fatalf("not all of %d hosts are joined: %v", hosts, joinedOf(c))
				}
			}
		}
		joined += await()
		b.Log("joined after ", joined)
		cpu += (cpuTime() - used).Seconds()
		routines += float64(runtime.NumGoroutine() - gos)
		files += float64(descriptors() - fds)
		debug.FreeOSMemory()
		memory += float64(resident()-rss) / (1 << 20)
		begin = time.Now()
		count := func() (n int) {
			w.Joined.news.Lock()
			defer w.Joined.news.Unlock()
			for _, d := range w.Joined.down {
				n += d
			}
			return n
		}
		resetTCP(b)
		for count() == 0 { // until the first loss is noticed
			time.Sleep(time.Millisecond)
		}
		for end := time.Now().Add(2 * time.Minute); count() > 0 || !whole(c, hosts-bad); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatalf("not all of %d hosts are joined again, %d links are down: %v", hosts, count(), joinedOf(c))
			}
		}
		again += time.Since(begin)
		w.Close()
	}
	per := func(d time.Duration) float64 { return d.Seconds() / float64(b.N) }
	b.ReportMetric(per(joined), "s/joined")
	b.ReportMetric(cpu/float64(b.N), "cpu-s/joined")
	b.ReportMetric(per(again), "s/joined-after-resets")
	b.ReportMetric(memory/float64(b.N), "MiB")
	b.ReportMetric(files/float64(b.N), "descriptors")
	b.ReportMetric(routines/float64(b.N), "goroutines")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOverlayAll measures a job whose hosts are all joined to each other in this process: the cost per host, and
// how it grows. A machine has enough descriptors for some dozens of hosts.
func BenchmarkOverlayAll(b *testing.B) {
	for _, hosts := range []int{8, 16, 32, 48} {
		b.Run(fmt.Sprint(hosts, " hosts"), func(b *testing.B) { benchOverlayAll(b, hosts) })
	}
}

func benchOverlayAll(b *testing.B, hosts int) {
	n := spec.Network{Type: "auto", Subnet: "10.77.0.0/16", MTU: 1500}
	var joined time.Duration
	var memory, files, cpu float64
	for range b.N {
		debug.FreeOSMemory()
		rss, fds, used := resident(), descriptors(), cpuTime()
		var cs []*state.Owned
		var ws []*Net
		for i := range hosts {
			own := overlayOf(hosts, i)
			w, err := Make(Request{Network: n, ID: [16]byte{byte(i)}, Names: own.Hosts[i].VMs, Overlay: &own})
			if err != nil {
				b.Fatal(err)
			}
			cs, ws = append(cs, benchOwned(b, own.Hosts[i].VMs[0])), append(ws, w)
		}
		begin := time.Now()
		for i, c := range cs {
			if err := ws[i].Joined.Start(c, channel.NewSwitchboard()); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; i < hosts; { // until each is joined to all
			if whole(cs[i], hosts) {
				i++
				continue
			}
			if time.Since(begin) > 5*time.Minute {
				b.Fatalf("host %d of %d: %v", i, hosts, joinedOf(cs[i]))
			}
			time.Sleep(time.Millisecond)
		}
		joined += time.Since(begin)
		cpu += (cpuTime() - used).Seconds()
		files += float64(descriptors() - fds)
		debug.FreeOSMemory()
		memory += float64(resident()-rss) / (1 << 20)
		var wg sync.WaitGroup
		for _, w := range ws {
			wg.Add(1)
			go func() { defer wg.Done(); w.Close() }()
		}
		wg.Wait()
	}
	per := float64(b.N * hosts)
	b.ReportMetric(joined.Seconds()/float64(b.N), "s/joined")
	b.ReportMetric(cpu/per, "cpu-s/host")
	b.ReportMetric(memory/per, "MiB/host")
	b.ReportMetric(files/per, "descriptors/host")
	b.ReportMetric(0, "ns/op")
}

// benchOwned returns a cluster of one VM in a directory of its own.
func benchOwned(b *testing.B, vm string) *state.Owned {
	b.Helper()
	b.Setenv("NEARMETAL_RUNTIME_DIR", b.TempDir())
	own, err := state.Create(state.Record{Name: "bench", VMs: []state.VMRecord{{Name: vm}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { own.Remove() })
	return own
}

// joinedOf returns an error that names a host that is not joined.
func joinedOf(o *state.Owned) error { r := o.Record(); return r.Joined() }

// whole reports whether that many hosts are joined.
func whole(o *state.Owned, hosts int) bool {
	for _, h := range o.Record().Overlay {
		if h.Joined {
			hosts--
		}
	}
	return hosts == 0
}

// resident returns the resident memory of this process, in bytes.
func resident() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var size, pages int64
	fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}

func descriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

func cpuTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
