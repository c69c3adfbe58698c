package network

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mesh is one host's side of the connections between all hosts of a job: TCP with TLS 1.3, for
// which both ends must hold the job's secret. The hosts find each other without being told of
// ports: each listens on the first free one of a few that the secret names, and who calls it
// tries them in turn.
type Mesh struct {
	o     MeshOptions
	ln    net.Listener
	tls   *tls.Config
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	calls chan struct{} // bounds the handshakes at a time
}

// MeshHost is a host of a job.
type MeshHost struct {
	Name string
	Addr string // IP address or name by which the other hosts reach it
}

// MeshOptions are what all hosts of a job must agree on, and which of them this is.
type MeshOptions struct {
	Secret []byte // 32 bytes, the job's own
	Hosts  []MeshHost
	Self   int // index of this host
	// LowPort and HighPort bound the ports to listen on.
	LowPort, HighPort int
	// Serve is called in a goroutine for each connection that another host makes: which host, and
	// for what. The connection is closed when it returns.
	Serve func(host int, kind string, c net.Conn)
}

// Bounds.
const (
	candidates  = 16 // ports that a host may listen on
	maxCalls    = 256
	dialTimeout = 3 * time.Second
	helloBound  = 10 * time.Second
	maxHello    = 128 // bytes
	meshVersion = "nearmetal-mesh 1"
)

// MaxMeshHosts is the largest number of hosts of a job whose VMs are joined.
const MaxMeshHosts = 1024

// NewMesh listens for the other hosts. Close ends it.
func NewMesh(o MeshOptions) (*Mesh, error) {
	if len(o.Secret) != 32 || o.Self < 0 || o.Self >= len(o.Hosts) {
		return nil, errors.New("network: a mesh needs a secret of 32 bytes, and this host among its hosts")
	}
	if len(o.Hosts) > MaxMeshHosts {
		return nil, fmt.Errorf("network: the VMs of %d hosts cannot be joined: %d are the most", len(o.Hosts), MaxMeshHosts)
	}
	if o.LowPort < 1 || o.HighPort > 65535 || o.HighPort < o.LowPort {
		return nil, fmt.Errorf("network: %d-%d is no range of ports", o.LowPort, o.HighPort)
	}
	m := &Mesh{o: o, calls: make(chan struct{}, maxCalls)}
	var err error
	if m.tls, err = secretTLS(o.Secret); err != nil {
		return nil, err
	}
	for _, p := range m.ports(o.Self) {
		if m.ln, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(p))); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("network: no port of %d-%d can be listened on: %w", o.LowPort, o.HighPort, err)
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.wg.Add(1)
	go m.listen()
	return m, nil
}

// Close ends all connections and waits until nothing of the mesh runs.
func (m *Mesh) Close() error {
	m.stop()
	m.ln.Close()
	m.wg.Wait()
	return nil
}

// ports are those that a host may listen on, in the order in which it tries them.
func (m *Mesh) ports(host int) []int {
	n := m.o.HighPort - m.o.LowPort + 1
	var list []int
	seen := map[int]bool{}
	for i := 0; len(list) < min(candidates, n); i++ {
		sum := Derive(m.o.Secret, fmt.Sprintf("port %d %d", host, i))
		p := m.o.LowPort + int(binary.BigEndian.Uint32(sum)%uint32(n))
		if !seen[p] {
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}

// Derive gives 32 bytes that follow from a secret for one use.
func Derive(secret []byte, use string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(use))
	return h.Sum(nil)
}

func (m *Mesh) listen() {
	defer m.wg.Done()
	for {
		c, err := m.ln.Accept()
		if err != nil {
			return
		}
		select {
		case m.calls <- struct{}{}:
		default:
			c.Close() // they will call again
			continue
		}
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			m.answer(c)
		}()
	}
}

// answer takes a call of another host.
func (m *Mesh) answer(raw net.Conn) {
	defer raw.Close()
	defer context.AfterFunc(m.ctx, func() { raw.Close() })()
	c := tls.Server(raw, m.tls)
	host, kind, err := m.hello(c)
	<-m.calls
	if err == nil && m.o.Serve != nil {
		m.o.Serve(host, kind, c)
	}
}

// hello reads who calls, and for what: "VERSION FROM TO KIND".
func (m *Mesh) hello(c *tls.Conn) (host int, kind string, err error) {
	c.SetDeadline(time.Now().Add(helloBound))
	line, err := readLine(c)
	if err != nil {
		return 0, "", err
	}
	f := strings.Fields(strings.TrimPrefix(line, meshVersion))
	if !strings.HasPrefix(line, meshVersion+" ") || len(f) != 3 {
		return 0, "", errors.New("network: a host of another version called")
	}
	from, err1 := strconv.Atoi(f[0])
	to, err2 := strconv.Atoi(f[1])
	if err := errors.Join(err1, err2); err != nil || from < 0 || from >= len(m.o.Hosts) || from == m.o.Self {
		return 0, "", errors.New("network: a host called that is none of the job's")
	}
	// Two hosts of a job may be one machine: then the caller has found the other of them.
	if to != m.o.Self {
		fmt.Fprintf(c, "no %d\n", m.o.Self)
		return 0, "", errors.New("network: another host was meant")
	}
	if _, err := fmt.Fprintf(c, "yes\n"); err != nil {
		return 0, "", err
	}
	return from, f[2], c.SetDeadline(time.Time{})
}

// readLine reads a line byte by byte: what follows it is not ours.
func readLine(c net.Conn) (string, error) {
	r := bufio.NewReaderSize(oneByte{c}, 16)
	var b strings.Builder
	for b.Len() < maxHello {
		x, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if x == '\n' {
			return b.String(), nil
		}
		b.WriteByte(x)
	}
	return "", errors.New("network: a greeting without an end")
}

type oneByte struct{ c net.Conn }

func (o oneByte) Read(p []byte) (int, error) { return o.c.Read(p[:min(1, len(p))]) }

// Dial calls a host until it answers or ctx ends; kind says what for, one word. said, which may be
// nil, is told why it has not answered yet.
func (m *Mesh) Dial(ctx context.Context, host int, kind string, said func(error)) (net.Conn, error) {
	wait := 50 * time.Millisecond
	for {
		var last error
		for _, p := range m.ports(host) {
			c, err := m.call(ctx, host, p, kind)
			if err == nil {
				return c, nil
			}
			if last == nil || !errors.Is(err, errNotIt) {
				last = err
			}
		}
		if said != nil {
			said(last)
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-m.ctx.Done():
			return nil, net.ErrClosed
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
}

// errNotIt says that whoever listens on a port is not the host that is meant.
var errNotIt = errors.New("is not the job's host")

func (m *Mesh) call(ctx context.Context, host, port int, kind string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	h := m.o.Hosts[host]
	addr := net.JoinHostPort(h.Addr, strconv.Itoa(port))
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	raw.SetDeadline(time.Now().Add(dialTimeout))
	c := tls.Client(raw, m.tls)
	_, err = fmt.Fprintf(c, "%s %d %d %s\n", meshVersion, m.o.Self, host, kind)
	line := ""
	if err == nil {
		line, err = readLine(c)
	}
	if err == nil && line != "yes" || err != nil {
		c.Close()
		return nil, fmt.Errorf("%s %w", addr, errNotIt)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		c.Close()
		return nil, err
	}
	context.AfterFunc(m.ctx, func() { raw.Close() })
	return c, nil
}

// Carry passes frames between a switch's end for another host (NewSwitch) and the connection to
// it until either ends, and closes both.
func Carry(end net.Conn, c net.Conn) {
	done := make(chan struct{}, 2)
	copyAll := func(to, from net.Conn) {
		io.Copy(to, from)
		to.Close()
		from.Close()
		done <- struct{}{}
	}
	go copyAll(c, end)
	go copyAll(end, c)
	<-done
	<-done
}
