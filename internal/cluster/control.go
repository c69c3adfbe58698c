package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
)

// maxClients is how many connections the control socket serves at a time: an mpirun on
// the host holds one for each VM.
const maxClients = 4096

// serve opens the control socket. Clients run programs in VMs through it, have them
// compared with the plan, and ask for the cluster's end.
func (c *Cluster) serve() error {
	path := filepath.Join(c.dir, controlFile)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	ln.SetUnlinkOnClose(false) // the directory goes as a whole
	c.ln = ln
	c.board.Handle("down", func(s *channel.Stream) {
		c.askOne.Do(func() { close(c.asked) })
		<-s.Gone() // the client waits for the owner's end
	})
	c.board.Handle("verify", c.serveVerify)
	c.board.Handle("load", c.serveLoad)
	c.board.Handle("pause", c.servePause)
	c.board.Handle("hold", c.serveHold)
	c.board.Handle("rename", c.serveRename)
	c.board.Handle("console", c.serveConsole)
	c.board.Handle("restart", c.serveRestart)
	var clients atomic.Int32
	go func() {
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			if clients.Load() >= maxClients || checkPeer(conn) != nil {
				conn.Close()
				continue
			}
			clients.Add(1)
			m, err := c.board.Client(conn, channel.Fields{{Key: "cluster", Value: c.Name()}})
			if err != nil {
				clients.Add(-1)
				continue
			}
			go func() { <-m.Done(); clients.Add(-1) }()
		}
	}()
	return nil
}

// checkPeer admits the owner's user and root. The directory's mode keeps others out
// already; this is for a directory that was opened by mistake.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("user %d may not use this cluster", cred.Uid)
	}
	return nil
}

// Client is a connection to a cluster's owner.
type Client struct {
	*guest.Client
	Record Record // as it stood when the connection was made
}

// Connect connects to the owner of the cluster called name (see Find for an empty one).
func Connect(ctx context.Context, name string) (*Client, error) {
	r, err := Find(name)
	if err != nil {
		return nil, err
	}
	base, err := Base()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(base, r.Name, controlFile))
	if err != nil {
		return nil, fmt.Errorf("cluster %s does not answer: %w", r.Name, err)
	}
	g, err := guest.Dial(ctx, conn, "cluster "+r.Name)
	if err != nil {
		return nil, err
	}
	return &Client{g, *r}, nil
}

// Running is an error where the user has paused the cluster: what is started in it would wait.
func (c *Client) Running() error {
	if c.Record.Paused {
		return fmt.Errorf("cluster %s is paused: nearmetal resume %[1]s", c.Record.Name)
	}
	return nil
}

// Runs reports whether the cluster is still meant to run: its owner lives and has not begun
// to end it.
func (c *Client) Runs() bool {
	r, err := Find(c.Record.Name)
	return err == nil && r.State != Ending
}

// Down asks the owner to end the cluster and waits until it has.
func (c *Client) Down(ctx context.Context) error {
	s, err := c.Mux().Open("down", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	base, err := Base()
	if err != nil {
		return err
	}
	owner, err := unix.PidfdOpen(c.Record.Owner, 0)
	if err != nil {
		owner = -1 // it has ended already
	}
	// The owner frees the lock when nothing of the cluster is left, and ends.
	done := make(chan error, 1)
	go func() {
		f, err := lockPath(filepath.Join(base, c.Record.Name, lockFile), unix.F_OFD_SETLKW)
		if err == nil {
			f.Close()
		} else if os.IsNotExist(err) {
			err = nil
		}
		if owner >= 0 {
			unix.Poll([]unix.PollFd{{Fd: int32(owner), Events: unix.POLLIN}}, 1000)
			unix.Close(owner)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
