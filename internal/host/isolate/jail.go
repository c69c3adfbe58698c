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

// Jail is a program with a mount, pid, ipc and network namespace of its own. It sees a file system that holds
// Binds, /proc with itself, /dev with null, zero, random and urandom, and nothing else. It has no
// capability and gets none (no_new_privs), and is under Landlock where the kernel has that.
//
// An ordinary user's jail has a user namespace, too, in which his own user and group are the only ones:
// files of all others seem to belong to user 65534 there. His groups still count.
type Jail struct {
	Args  []string `json:"args"` // the program by its absolute path, then its arguments
	Env   []string `json:"env"`
	Binds []Bind   `json:"binds"`
	// Network: the program stays in the host's network. It may then open no TCP port to others, and reach no
	// abstract socket of programs outside, where Landlock knows of these.
	Network bool `json:"network"`
	// LockMemory: root's program may lock all memory, which it otherwise may not without capabilities.
	LockMemory bool `json:"lockMemory"`
	// DropsRights: root's program drops its capabilities itself, and ends where it may not. It starts with the right to
	// do that (CAP_SETPCAP), and no other.
	DropsRights bool `json:"dropsRights"`
	// OpenFiles is how many files the program may have open; 0: as many as this process.
	OpenFiles uint64 `json:"openFiles"`
	// ProcFiles are files of the kernel's that the program looks for below /proc, by their absolute paths, with the
	// text that they hold in the jail. /proc/self is there in any case.
	ProcFiles map[string]string `json:"procFiles"`
	// NoLandlock leaves Landlock out, for tests of what holds without it.
	NoLandlock bool `json:"noLandlock"`
	// Files are inherited, from descriptor 3 on.
	Files []JailFile `json:"files"`
	// Cgroup is where the program is born, an open directory of cgroup v2; nil: where this process is.
	Cgroup *os.File `json:"-"`
}

// Bind is a file or directory of the host that a jail shows read-only.
type Bind struct {
	Path   string `json:"path"`         // on the host, absolute; links are followed
	At     string `json:"at,omitempty"` // in the jail; "": at Path
	Exec   bool   `json:"exec,omitempty"`
	Device bool   `json:"device,omitempty"` // a device, or a directory of them: to be opened, written and controlled
	// Optional: it may be missing.
	Optional bool `json:"optional,omitempty"`
}

// JailFile is a file that the program inherits.
type JailFile struct {
	File *os.File `json:"-"`
	// Reopen: the program may open it once more through /proc/self/fd, or what is below it; Write: for
	// writing, too.
	Reopen bool `json:"reopen"`
	Write  bool `json:"write"`
	// At, if not "", is where the file, a tree that is mounted nowhere (Veil.Tree), is mounted in the jail. The
	// program does not inherit it then: such files are the last.
	At string `json:"at,omitempty"`
}

// jailTime bounds what the child does before it becomes the program.
const jailTime = 60 * time.Second

// Command returns the command that becomes the program, to be started by the caller, who may set its streams and
// what happens to it. After that the caller calls enter with the error of the start: it returns when the
// program runs in its jail, or with what cannot be had; a *NoNamespace where the host lets this user make no namespace.
// The process has to be ended and waited for by the caller then.
func (j *Jail) Command() (cmd *exec.Cmd, enter func(started error) error, err error) {
	conn, theirs, err := sockpair.Conn("jail")
	if err != nil {
		return nil, nil, err
	}
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC)
	if !j.Network {
		flags |= unix.CLONE_NEWNET
	}
	c := childCommand(jailName, flags, os.Geteuid(), os.Getegid()) // the user stays himself, so that files are his
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
	said, err := io.ReadAll(io.LimitReader(conn, 4096)) // its end is closed by the start of the program
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

// jailAnswer is what the child says where it cannot become the program.
type jailAnswer struct {
	Error     string `json:"error"`
	Namespace bool   `json:"namespace"` // it has not the right to mount
}
