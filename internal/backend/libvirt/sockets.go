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
	"time"

	"golang.org/x/sys/unix"
)

// sockets are the sockets to which QEMU connects, in a directory that only the user may enter. They have names until
// QEMU has connected.
type sockets struct {
	paths     map[string]string
	listeners map[string]*net.UnixListener
	temporary string // a directory made for them; "": none
}

// listen makes a socket for each purpose in what. dir is a directory of the user's own; "": a new one.
func listen(dir string, what []string) (*sockets, error) {
	s := &sockets{paths: map[string]string{}, listeners: map[string]*net.UnixListener{}}
	var err error
	if dir == "" {
		if dir, err = os.MkdirTemp("", "nearmetal-"); err != nil {
			return nil, err
		}
		s.temporary = dir
	}
	// The names are short: a socket's path has at most 107 bytes, and cluster.Base leaves 12 for the name.
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	for i, w := range what {
		path := filepath.Join(dir, fmt.Sprintf("%s.%d", hex.EncodeToString(b[:]), i))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			s.close()
			return nil, fmt.Errorf("the socket for its %s: %w", w, err)
		}
		s.paths[w], s.listeners[w] = path, l
	}
	return s, nil
}

// close removes the names. Accepted connections stay open.
func (s *sockets) close() {
	for _, l := range s.listeners {
		l.Close()
	}
	if s.temporary != "" {
		os.Remove(s.temporary)
	}
}

// accept waits until QEMU has connected to all sockets, and returns its connections and its PID. All callers must be
// one process of this user: except for root nobody else can enter the directory.
func (s *sockets) accept(ctx context.Context) (conns map[string]*net.UnixConn, pid int, err error) {
	conns = map[string]*net.UnixConn{}
	defer func() {
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
		}
	}()
	stop := context.AfterFunc(ctx, func() {
		for _, l := range s.listeners {
			l.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	for what, l := range s.listeners {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return conns, 0, fmt.Errorf("QEMU did not connect to the socket for its %s: %w", what, err)
		}
		conns[what] = c
		cred, err := peer(c)
		switch {
		case err != nil:
			return conns, 0, err
		case int(cred.Uid) != os.Geteuid():
			return conns, 0, fmt.Errorf("a process of user %d connected in QEMU's place", cred.Uid)
		case pid != 0 && int(cred.Pid) != pid:
			return conns, 0, errors.New("two processes connected in QEMU's place")
		}
		pid = int(cred.Pid)
	}
	return conns, pid, nil
}

// peer returns the credentials of the process at the other end.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var e error
	if err := raw.Control(func(fd uintptr) { cred, e = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, e
}
