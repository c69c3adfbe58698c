package cluster

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// maxClients bounds the simultaneous connections to the control socket: an mpirun on the host opens one per VM.
const maxClients = 4096

// serve opens the control socket. Clients use it to run programs in VMs, to compare the VMs with the plan, and to end
// the cluster.
func (c *Cluster) serve() error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.own.Path(state.ControlFile), Net: "unix"})
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	ln.SetUnlinkOnClose(false) // the cluster's directory is removed as a whole
	c.ln = ln
	c.board.Handle("down", func(s *channel.Stream) {
		c.askOne.Do(func() { close(c.asked) })
		<-s.Gone() // the client waits until the owner has exited
	})
	c.board.Handle("verify", c.serveVerify)
	c.board.Handle("load", c.serveLoad)
	if c.here != nil {
		c.board.Handle("pause", c.here.ServePause)
	} else {
		c.board.Handle("pause", func(s *channel.Stream) { s.Reset("no such VM on this host") })
	}
	c.board.Handle("hold", c.serveHold)
	c.board.Handle("rename", c.serveRename)
	c.board.Handle("console", c.serveConsole)
	c.board.Handle("restart", c.serveRestart)
	c.board.Handle(client.KindAwait, c.serveAwait)
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

// checkPeer admits only the owner's user and root. The directory's mode already excludes others; this check also
// holds if the mode was changed by mistake.
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
