package libvirt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/console"
	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/network"
	"nearmetal/internal/process"
)

// The keys of a Ref's ID.
const (
	keyUUID = "uuid"
	keyName = "name"
)

// connectTime bounds the time from libvirtd's report that QEMU runs until QEMU has connected to its sockets.
const connectTime = 30 * time.Second

// undoTime bounds the end of a domain whose start failed.
const undoTime = 30 * time.Second

// Start makes the VM's domain, connects it to this process, and lets it run.
func (d *driver) Start(ctx context.Context, r backend.Request) (backend.Instance, error) {
	i, err := d.start(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", r.VM.Name, err)
	}
	return i, nil
}

func (d *driver) start(ctx context.Context, r backend.Request) (*instance, error) {
	c, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	id, err := identify(r)
	if err != nil {
		return nil, err
	}
	dir := ""
	if r.ConsoleLog != "" {
		dir = filepath.Dir(r.ConsoleLog)
	}
	s, err := listen(dir, socketsFor(r.Settings))
	if err != nil {
		return nil, err
	}
	defer s.close()
	x, err := d.machine(r.VM, r.Settings, id, places{os.Getpid(), s.paths, r.Files})
	if err != nil {
		return nil, err
	}
	text, err := domain.Marshal(x)
	if err != nil {
		return nil, err
	}
	con, err := console.New(r.ConsoleLog)
	if err != nil {
		return nil, err
	}
	i := &instance{
		d: d, console: con, done: make(chan struct{}), heard: make(chan struct{}), stated: make(chan struct{}),
		ref: backend.Ref{Driver: nameOf(d.address), What: fmt.Sprintf("domain %s of libvirtd (%s)", id.name, d.address),
			ID: map[string]string{keyUUID: string(id.uuid), keyName: id.name}},
	}
	if err := r.Record(i.ref); err != nil {
		con.Read(empty{})
		return nil, err
	}
	d.mu.Lock()
	d.watched[id.uuid] = i
	d.mu.Unlock()
	if err := i.bringUp(ctx, c, text, s, r); err != nil {
		i.undo()
		return nil, err
	}
	return i, nil
}

// identify chooses the domain's name and UUID.
func identify(r backend.Request) (identity, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return identity{}, err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	h := hex.EncodeToString(b[:])
	uuid := strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
	name := r.VM.Name
	if r.Cluster != "" {
		name = r.Cluster + "-" + name
	}
	return identity{name, daemon.UUID(uuid), r.Cluster}, nil
}

// bringUp makes the domain, and returns when it runs. If it fails, undo ends what is left.
func (i *instance) bringUp(ctx context.Context, c *daemon.Conn, text string, s *sockets, r backend.Request) error {
	// Not bounded by ctx: libvirtd completes an operation that it has begun, and only then can it be undone.
	made := make(chan error, 1)
	go func() {
		x, err := c.Create(context.Background(), text)
		i.mu.Lock()
		i.domain = x
		i.mu.Unlock()
		made <- err
	}()
	select {
	case err := <-made:
		if err != nil {
			return refused(err)
		}
	case <-ctx.Done():
		select {
		case <-made:
		case <-time.After(undoTime):
		}
		return context.Cause(ctx)
	}
	accept, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conns, pid, err := s.accept(accept)
	if err != nil {
		return err
	}
	i.conns = conns
	if err := i.follow(pid); err != nil {
		return err
	}
	go i.console.Read(conns[socketConsole])
	if err := i.carry(conns, r); err != nil {
		return err
	}
	for _, n := range userNetworks(r.Settings.Links) {
		if err := c.Monitor(i.domain).Execute(ctx, "netdev_add", n, nil); err != nil {
			return fmt.Errorf("its network: %w", err)
		}
	}
	if err := c.Shutdowns(i.domain, i.reason); err != nil {
		return err
	}
	if err := fenced(pid); err != nil {
		return err
	}
	return c.Resume(ctx, i.domain)
}

// refused returns the reason why a domain was not made.
func refused(err error) error {
	if daemon.IsTaken(err) {
		return fmt.Errorf("libvirtd has a domain of that name already, which is left alone (%w): take another name with --name", err)
	}
	return fmt.Errorf("libvirtd refused the domain: %w", err)
}

// carry forwards the traffic of the VM's links.
func (i *instance) carry(conns map[string]*net.UnixConn, r backend.Request) error {
	isTap := taps(r.Settings.Links)
	if len(isTap) != len(r.Files.Links) {
		return fmt.Errorf("%d files for %d network links", len(r.Files.Links), len(isTap))
	}
	for k, f := range r.Files.Links {
		// A separate copy, because the caller closes its files.
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		mine, conn := os.NewFile(uintptr(fd), f.Name()), conns[fmt.Sprint(socketLink, k)]
		if isTap[k] {
			go network.CarryTap(conn, mine)
			continue
		}
		end, err := net.FileConn(mine)
		mine.Close()
		if err != nil {
			return err
		}
		go network.Carry(conn, end)
	}
	return nil
}

// fenced returns an error if a process's system calls are not filtered, as they are by libvirtd's default.
func fenced(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "Seccomp:"); ok && strings.TrimSpace(v) == "2" {
			return nil
		}
	}
	return errors.New("its QEMU's system calls are not filtered: take seccomp_sandbox = 0 out of libvirtd's qemu.conf")
}

// undo ends a domain whose start failed.
func (i *instance) undo() {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	i.Kill(ctx) // the journal names what remains then
	if i.process == nil {
		i.finish()
	}
	for _, c := range i.conns {
		c.Close()
	}
	if i.conns == nil {
		i.console.Read(empty{})
	}
}

// empty is a console without output.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, errors.New("there is no console") }
func (empty) Close() error             { return nil }

// follow records the VM's process, and watches for its end.
func (i *instance) follow(pid int) error {
	start, err := process.Start(pid)
	if err != nil {
		return err
	}
	if i.process, err = process.Find(pid, start); err != nil {
		return err
	}
	go i.watch()
	return nil
}
