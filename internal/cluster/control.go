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

// maxClients is how many connections the control socket serves at a time: an mpirun on
// the host holds one for each VM.
const maxClients = 4096

// serve opens the control socket. Clients run programs in VMs through it, have them
// compared with the plan, and ask for the cluster's end.
func (c *Cluster) serve() error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.own.Path(state.ControlFile), Net: "unix"})
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
