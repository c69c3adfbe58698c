package launch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program to dir.
func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func detect(t *testing.T, name string) (Launcher, bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return Detect(ctx, []string{name, "-n", "2", "./app"}, exec.LookPath)
}

func TestDetect(t *testing.T) {
	dir := t.TempDir()
	const ompi = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.6'\n"
	orterun := script(t, dir, "orterun", ompi)
	script(t, dir, "mpirun.py", "not run")
	script(t, dir, "solver", "#!/bin/sh\ntouch "+filepath.Join(dir, "ran")+"\n")
	for link, to := range map[string]string{"mpirun": "alternatives", "alternatives": "mpirun.openmpi", "mpirun.openmpi": "orterun", "myrun": "orterun"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	for _, name := range []string{"mpirun", "mpirun.openmpi", "myrun", orterun} {
		l, ok, err := detect(t, name)
		if err != nil || !ok || l != (Launcher{Program: orterun, Library: OpenMPI, Version: "4.1.6"}) {
			t.Errorf("%s: %+v %v %v", name, l, ok, err)
		}
	}
	for _, name := range []string{"solver", "true", "no-such-program", dir} {
		if l, ok, err := detect(t, name); ok || err != nil {
			t.Errorf("%s: %+v %v %v", name, l, ok, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program without a launcher's name was run")
	}
	if _, ok, err := Detect(context.Background(), nil, exec.LookPath); ok || err != nil {
		t.Error("nothing is a launcher")
	}

	// A changed file is run again.
	script(t, dir, "orterun", strings.Replace(ompi, "4.1.6", "5.0.1", 1)+"# longer\n")
	if l, _, _ := detect(t, "mpirun"); l.Version != "5.0.1" {
		t.Errorf("a new version was not seen: %+v", l)
	}
}

func TestDetectUnknown(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mpirun":     "#!/bin/sh\necho 'Frobnicator 3'\n",
		"mpiexec":    "#!/bin/sh\nexec yes | head -c 100000000\n",
		"mpirun_rsh": "#!/bin/sh\n",
		"orterun":    "no program",
		"mpirun-2.1": "#!/bin/sh\nexit 3\n",
	} {
		_, ok, err := detect(t, script(t, dir, name, text))
		var unknown *UnknownError
		if ok || !errors.As(err, &unknown) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
}

// TestDetectHangs: a launcher that never answers is killed.
func TestDetectHangs(t *testing.T) {
	path := script(t, t.TempDir(), "mpirun", "#!/bin/sh\nsleep 1000\n")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, ok, err := Detect(ctx, []string{path}, exec.LookPath); ok || err == nil {
		t.Errorf("%v %v", ok, err)
	}
}

func TestLauncherName(t *testing.T) {
	for _, s := range []string{"mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpiexec-mpich-mp", "orterun", "prterun", "mpirun.mpich", "mpirun-4.1", "mpiexec4.2"} {
		if !launcherName().MatchString(s) {
			t.Errorf("%s is a launcher's name", s)
		}
	}
	for _, s := range []string{"mpirunner", "mympirun", "mpi", "run", "srun", "mpiexecutor", "env"} {
		if launcherName().MatchString(s) {
			t.Errorf("%s is not a launcher's name", s)
		}
	}
}
