package isolate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/linejson"
	"nearmetal/internal/sockpair"
)

// veilName is this program's name as the child that holds a veil.
const veilName = "nearmetal-veil"

// Veil is a view of directories of this host: their contents without the pseudo file systems (/proc, /sys, /dev, …),
// without /run, without hidden directories, and in /tmp and /var/tmp with only this user's own files. It is a mount
// namespace that a child of this process holds.
type Veil struct {
	dirs []*os.File
	ns   *os.File
	cmd  *child
	path []string // of the results of Tree

	mu   sync.Mutex
	conn *net.UnixConn
	read *bufio.Reader
}

// veilOrder is the order to the child, in one line.
type veilOrder struct {
	Dirs   []string `json:"dirs"`
	Hidden []string `json:"hidden"`
	Locked bool     `json:"locked"`
	Write  []string `json:"write"`
	Trees  bool     `json:"trees"` // no directories at the start, but trees on request
}

// veilAnswer is the child's first answer, in one line. The files follow, one with each byte.
type veilAnswer struct {
	Error string `json:"error,omitempty"`
}

// veilTime bounds each answer of the child. It has some tens of mounts to make.
const veilTime = 60 * time.Second

// NoNamespace is the error if this host lets the user make no namespace.
type NoNamespace struct{ Err error }

func (e *NoNamespace) Error() string {
	return fmt.Sprintf("this host lets you make no user namespace (%v)", e.Err)
}

func (e *NoNamespace) Unwrap() error { return e.Err }

// NewVeil presents the directories dirs (absolute paths) and covers those in hidden, which need not exist. The error
// is a *NoNamespace if the host does not permit this user to do it.
func NewVeil(dirs, hidden []string) (*Veil, error) {
	return startVeil(veilOrder{Dirs: dirs, Hidden: hidden})
}

// NewLockedVeil is NewVeil for a process that may itself be hostile: the kernel permits writes through the view only
// below those of dirs that are in write, and no path leads out of a directory: its parent is itself. It needs Linux
// 5.12.
func NewLockedVeil(dirs, hidden, write []string) (*Veil, error) {
	return startVeil(veilOrder{Dirs: dirs, Hidden: hidden, Locked: true, Write: write})
}

// NewTreeVeil is NewLockedVeil for processes that have a mount namespace of their own (Jail), and open a directory by
// its name there: they get it by Tree. Dirs is empty.
func NewTreeVeil(dirs, hidden, write []string) (*Veil, error) {
	return startVeil(veilOrder{Dirs: dirs, Hidden: hidden, Write: write, Trees: true})
}

func startVeil(o veilOrder) (*Veil, error) {
	conn, theirs, err := sockpair.Conn("veil")
	if err != nil {
		return nil, err
	}
	v := &Veil{conn: conn, cmd: childCommand(veilName, unix.CLONE_NEWNS, 0, 0)}
	v.cmd.ExtraFiles = []*os.File{theirs}
	err = v.cmd.Start()
	theirs.Close()
	if err != nil {
		conn.Close()
		return nil, &NoNamespace{plain(err)}
	}
	if err = v.cmd.mapUser(); err == nil {
		err = v.begin(o)
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// begin has the child make its mounts and receives its files.
func (v *Veil) begin(o veilOrder) error {
	v.conn.SetDeadline(time.Now().Add(veilTime))
	defer v.conn.SetDeadline(time.Time{})
	if err := linejson.Write(v.conn, o); err != nil {
		return fmt.Errorf("veil: %w", err)
	}
	if o.Trees {
		v.path, o.Dirs = o.Dirs, nil
	}
	for range o.Dirs {
		f, err := v.file()
		if err != nil {
			return err
		}
		v.dirs = append(v.dirs, f)
	}
	var err error
	v.ns, err = v.file()
	v.read = bufio.NewReader(v.conn)
	return err
}

// file receives one file from the child, sent with a byte 'f'. Any other text is the reason why there is none.
func (v *Veil) file() (*os.File, error) {
	var b [1024]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, k, _, _, err := v.conn.ReadMsgUnix(b[:1], oob)
	if err != nil || n == 0 {
		return nil, errors.New("veil: the process that makes it ended")
	}
	if b[0] != 'f' {
		n, _ := v.conn.Read(b[1:])
		var a veilAnswer
		if json.Unmarshal(b[:1+n], &a) != nil || a.Error == "" {
			a.Error = "no answer"
		}
		return nil, &NoNamespace{errors.New(a.Error)}
	}
	list, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil || len(list) != 1 {
		return nil, errors.New("veil: a file is missing")
	}
	got, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(got) != 1 {
		return nil, errors.New("veil: a file is missing")
	}
	unix.CloseOnExec(got[0])
	return os.NewFile(uintptr(got[0]), "veil"), nil
}

// Dirs returns the directories, opened for searching only (O_PATH), in the order of NewVeil. They belong to the Veil;
// a process that gets one sees through the veil.
func (v *Veil) Dirs() []*os.File { return v.dirs }

// Namespace returns a file that keeps the covers in place while it is open: a process that gets a file of Dirs also
// gets this.
func (v *Veil) Namespace() *os.File { return v.ns }

// Refresh makes visible the files that this user has since made in /tmp and /var/tmp, and covers pseudo file systems
// that were mounted since. It returns when that is complete.
func (v *Veil) Refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conn.SetDeadline(time.Now().Add(veilTime))
	if _, err := v.conn.Write([]byte{'r'}); err != nil {
		return fmt.Errorf("veil: %w", err)
	}
	if b, err := v.read.ReadByte(); err != nil || b != 'k' {
		return errors.New("veil: the process that holds it ended")
	}
	return nil
}

// Tree returns directory number i of NewTreeVeil as an unmounted tree, for one process (JailFile.At). Files that
// Refresh makes visible later also appear in it. The caller closes it.
func (v *Veil) Tree(i int) (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i < 0 || i >= len(v.path) {
		return nil, fmt.Errorf("veil: there is no tree %d", i)
	}
	v.conn.SetDeadline(time.Now().Add(veilTime))
	if _, err := fmt.Fprintf(v.conn, "t%d\n", i); err != nil {
		return nil, fmt.Errorf("veil: %w", err)
	}
	f, err := v.file()
	var no *NoNamespace
	if errors.As(err, &no) {
		err = fmt.Errorf("veil: %w", no.Err)
	}
	return f, err
}

// Close ends the process and closes the files. Files that others have open are not affected.
func (v *Veil) Close() {
	v.conn.Close() // ends the child
	for _, f := range append(v.dirs, v.ns) {
		if f != nil {
			f.Close()
		}
	}
	if v.cmd.Process != nil {
		v.cmd.Process.Kill()
		v.cmd.Wait()
	}
}

// plain removes the program's path from an error.
func plain(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}
