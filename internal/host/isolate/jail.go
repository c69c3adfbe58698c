package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/linejson"
	"nearmetal/internal/sockpair"
)

// jailName is this program's name as the child that becomes a program in a jail.
const jailName = "nearmetal-jail"

// Jail is a program with its own mount, pid, ipc and network namespaces. Its file system contains only Binds, /proc
// with itself, and /dev with null, zero, random and urandom. It has no capabilities and cannot get any
// (no_new_privs), and is under Landlock if the kernel has it.
//
// An ordinary user's jail also has a user namespace, in which that user and group are the only ones: all others'
// files appear to belong to user 65534 there. The user's supplementary groups still apply.
type Jail struct {
	Args  []string `json:"args"` // the absolute path of the program, then its arguments
	Env   []string `json:"env"`
	Binds []Bind   `json:"binds"`
	// Network: the program stays in the host's network. It may then open no TCP port to others, and connect to no
	// abstract socket of programs outside, if Landlock supports that.
	Network bool `json:"network"`
	// LockMemory: root's program may lock all memory, which it otherwise may not without capabilities.
	LockMemory bool `json:"lockMemory"`
	// DropsRights: root's program drops its capabilities itself, and exits if it may not. It starts with only the
	// right to do that (CAP_SETPCAP).
	DropsRights bool `json:"dropsRights"`
	// OpenFiles is how many files the program may have open; 0: as many as this process.
	OpenFiles uint64 `json:"openFiles"`
	// ProcFiles are kernel files below /proc that the program reads, by their absolute paths, with their contents in
	// the jail. /proc/self always exists.
	ProcFiles map[string]string `json:"procFiles"`
	// NoLandlock disables Landlock, for tests of the protection without it.
	NoLandlock bool `json:"noLandlock"`
	// Files are inherited, from descriptor 3 on.
	Files []JailFile `json:"files"`
	// Cgroup is an open directory of cgroup v2 in which the program is created; nil: this process's.
	Cgroup *os.File `json:"-"`
}

// Bind is a file or directory of the host that is mounted read-only in a jail.
type Bind struct {
	Path   string `json:"path"`         // on the host, absolute; links are followed
	At     string `json:"at,omitempty"` // in the jail; "": at Path
	Exec   bool   `json:"exec,omitempty"`
	Device bool   `json:"device,omitempty"` // a device, or a directory of devices: may be opened, written and controlled
	// Optional: it may be missing.
	Optional bool `json:"optional,omitempty"`
}

// JailFile is a file that the program inherits.
type JailFile struct {
	File *os.File `json:"-"`
	// Reopen: the program may reopen it through /proc/self/fd, or open files below it; Write: also for writing.
	Reopen bool `json:"reopen"`
	Write  bool `json:"write"`
	// At, if not "", is where the file, an unmounted tree (Veil.Tree), is mounted in the jail. The program then does
	// not inherit it: such files are the last.
	At string `json:"at,omitempty"`
}

// jailTime bounds the child's work before it becomes the program.
const jailTime = 60 * time.Second

// Command returns the command that becomes the program. The caller starts it, and may set its streams and other
// attributes. Then the caller calls enter with the error of the start. enter returns when the program runs in its
// jail, or with the missing feature; a *NoNamespace if the host lets this user make no namespace. In that case the
// caller has to kill and wait for the process.
func (j *Jail) Command() (cmd *exec.Cmd, enter func(started error) error, err error) {
	conn, theirs, err := sockpair.Conn("jail")
	if err != nil {
		return nil, nil, err
	}
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC)
	if !j.Network {
		flags |= unix.CLONE_NEWNET
	}
	// The user keeps their ID, so that they own their files.
	c := childCommand(jailName, flags, os.Geteuid(), os.Getegid())
	cmd = c.Cmd
	if j.Cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(j.Cgroup.Fd())
	}
	for _, f := range j.Files {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f.File)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	cmd.Args = append(cmd.Args, strconv.Itoa(childFD+len(j.Files)))
	return cmd, func(started error) error {
		defer conn.Close()
		theirs.Close()
		if started != nil {
			return &NoNamespace{plain(started)}
		}
		if err := c.mapUser(); err != nil {
			return err
		}
		return j.enter(conn)
	}, nil
}

// enter sends the order to the child and waits until it is the program.
func (j *Jail) enter(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(jailTime))
	if err := linejson.Write(conn, j); err != nil {
		return fmt.Errorf("jail: %w", err)
	}
	said, err := io.ReadAll(io.LimitReader(conn, 4096)) // the program's exec closes the child's end
	if err != nil {
		return fmt.Errorf("jail: %w", err)
	}
	var a jailAnswer
	switch {
	case len(said) == 0:
		return nil
	case json.Unmarshal(said, &a) != nil || a.Error == "":
		return errors.New("jail: a strange answer")
	case a.Namespace:
		return &NoNamespace{errors.New(a.Error)}
	}
	return errors.New("jail: " + a.Error)
}

// jailAnswer is the child's report if it cannot become the program.
type jailAnswer struct {
	Error     string `json:"error"`
	Namespace bool   `json:"namespace"` // it has no right to mount
}
