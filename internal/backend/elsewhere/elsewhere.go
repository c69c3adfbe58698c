// Package elsewhere serves backends that are in another program, because they start too slowly, or are too large, for
// nearmetal itself. The other program has the same commands and is installed in the same directory. If such a backend
// is needed, this process executes the other program: same arguments, same standard streams, same PID. That happens
// before anything is made or changed.
package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// varBecame names the program that a process has become, so that a program without the backend does not execute
// itself forever. Began unsets it.
const varBecame = "NEARMETAL_BECAME"

// programs are the backends' programs, by scheme.
var programs = map[string]string{}

// Register states that the backend is in program, and that program also reads files with this suffix ("": none).
func Register(scheme, program, suffix string) {
	programs[scheme] = program
	backend.Register(scheme, func(string) (backend.Driver, error) { return driver{program}, nil })
	if suffix != "" {
		topology.RegisterSuffix(suffix, func(string) (*topology.Host, error) { return nil, Become(program) })
	}
}

// Began is called by the other program at its start.
func Began() { os.Unsetenv(varBecame) }

// consumed is the standard input read so far; nil: nothing.
var consumed []byte

// Consumed records the standard input read so far: the other program's input begins with it.
func Consumed(stdin []byte) { consumed = stdin }

// Needed executes the program of the backend called name, if it is in another program.
func Needed(name string) error {
	if p := programs[backend.Scheme(name)]; p != "" {
		return Become(p)
	}
	return nil
}

// Become replaces this process by the named program. It returns only if that fails.
func Become(program string) error {
	path, err := find(program)
	if err != nil {
		return err
	}
	if self, err := os.Executable(); err != nil || filepath.Base(self) != "nearmetal" {
		// Another program's arguments are different ones.
		return fmt.Errorf("%s does what nearmetal does, and this is %s", program, filepath.Base(self))
	}
	if os.Getenv(varBecame) == program {
		return fmt.Errorf("%s: this program was built without its backend: make builds it", path)
	}
	if consumed != nil {
		if err := rewindStdin(consumed); err != nil {
			return fmt.Errorf("standard input for %s: %w", program, err)
		}
	}
	os.Setenv(varBecame, program)
	err = unix.Exec(path, os.Args, os.Environ())
	os.Unsetenv(varBecame)
	return fmt.Errorf("%s: %w", path, err)
}

// find finds a program in the directory of this one, or in PATH.
func find(program string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), program)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is needed for this, and is neither in %s nor in PATH: make install puts it beside nearmetal", program, filepath.Dir(self))
}

// rewindStdin makes standard input begin with stdin, which was read from it: the original file is at its end.
func rewindStdin(stdin []byte) error {
	fd, err := unix.MemfdCreate("stdin", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, stdin); err != nil {
		return err
	}
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return err
	}
	return unix.Dup3(fd, 0, 0)
}

// driver represents one that is in another program. Each call makes this process the other program.
type driver struct{ program string }

func (d driver) Probe(context.Context, *spec.Cluster) (*backend.Probed, error) {
	return nil, Become(d.program)
}

func (d driver) Check(plan.VM, backend.Settings) error { return Become(d.program) }

func (d driver) Start(context.Context, backend.Request) (backend.Instance, error) {
	return nil, Become(d.program)
}

// Attach is called by a sweep, with which commands begin; the other program sweeps again.
func (d driver) Attach(context.Context, backend.Ref) (backend.Instance, error) {
	return nil, Become(d.program)
}

func (d driver) Close() error { return nil }

// Version returns the place of the backend.
func (d driver) Version(context.Context) (string, error) {
	path, err := find(d.program)
	if err != nil {
		return "", errors.New(d.program + " is not installed")
	}
	return path, nil
}
