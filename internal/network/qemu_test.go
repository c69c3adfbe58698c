package network

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startHub starts a real QEMU, without a machine, that forwards frames between the stream link end and datagrams on the
// socket it returns, which carries what a VM's card would send and receive.
func startHub(t *testing.T, end *os.File) *os.File {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs QEMU")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs qemu-system-x86_64")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "card"), os.NewFile(uintptr(fds[1]), "card")
	var out bytes.Buffer
	cmd := exec.Command(qemu, "-M", "none", "-nodefaults", "-display", "none",
		"-netdev", "stream,id=link,server=off,addr.type=fd,addr.str=3",
		"-netdev", "dgram,id=card,local.type=fd,local.str=4",
		"-netdev", "hubport,id=h0,hubid=0,netdev=link",
		"-netdev", "hubport,id=h1,hubid=0,netdev=card")
	cmd.ExtraFiles = []*os.File{end, theirs}
	cmd.Stderr = &out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	theirs.Close()
	t.Cleanup(func() {
		ours.Close()
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log("QEMU said:", strings.TrimSpace(out.String()))
		}
	})
	return ours
}

// recv reads one datagram, within a minute.
func recv(t *testing.T, f *os.File) []byte {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for end := time.Now().Add(time.Minute); ; {
		n, err := unix.Poll(p, int(time.Until(end).Milliseconds()))
		if n == 1 {
			break
		}
		if err != unix.EINTR {
			t.Fatalf("no frame within a minute (%v)", err)
		}
	}
	b := make([]byte, 1<<17)
	n, err := f.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// The framing is QEMU's: frames of every size pass through two QEMUs and the link between them, a pair or the switch.
func TestQEMUFraming(t *testing.T) {
	links := map[string]func(t *testing.T) (a, b *os.File, addrs []Address){
		"pair": func(t *testing.T) (*os.File, *os.File, []Address) {
			_, _, addrs := testSwitch(t, 2)
			a, b, err := Pair()
			if err != nil {
				t.Fatal(err)
			}
			return a, b, addrs
		},
		"switch": func(t *testing.T) (*os.File, *os.File, []Address) {
			_, ends, addrs := testSwitch(t, 3)
			return ends[0], ends[1], addrs
		},
	}
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			a, b, addrs := link(t)
			// A QEMU drops the frames it receives before its link is up. A frame that waits on the link for each QEMU
			// shows when the link is up.
			write(t, a, frame(addrs[1].MAC, addrs[0].MAC, 60, 0))
			write(t, b, frame(addrs[0].MAC, addrs[1].MAC, 60, 0))
			cardA, cardB := startHub(t, a), startHub(t, b)
			recv(t, cardA)
			recv(t, cardB)
			for _, n := range []int{60, 1514, 9014, 65521, MaxMTU + ethernetHeader} {
				sent := frame(addrs[1].MAC, addrs[0].MAC, n, byte(n))[lengthLen:]
				if _, err := cardA.Write(sent); err != nil {
					t.Fatal(err)
				}
				if got := recv(t, cardB); !bytes.Equal(got, sent) {
					t.Fatalf("%d bytes were sent, %d others came", n, len(got))
				}
				back := frame(broadcast, addrs[1].MAC, n, byte(n))[lengthLen:]
				cardB.Write(back)
				if got := recv(t, cardA); !bytes.Equal(got, back) {
					t.Fatalf("%d bytes were sent back, %d others came", n, len(got))
				}
			}
		})
	}
}
