package mpi

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// environment makes a Python environment below programs with a script, and its own MPI.
func environment(t *testing.T, library string) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	for name, text := range map[string]string{
		"pyvenv.cfg": "", "lib/" + library: "",
		"bin/lmp":     "#!/bin/sh\n",
		"bin/mpiexec": "#!/bin/sh\necho 'HYDRA build details:'\necho '    Version: 5.0.2'\n",
	} {
		path := filepath.Join(venv, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return venv
}

// TestPythonEnvironment: a script of a Python environment is built for that environment's MPI, whose launcher is
// found if PATH has none.
func TestPythonEnvironment(t *testing.T) {
	venv := environment(t, "libmpi.so.12")
	if got, err := Library(filepath.Join(venv, "bin/lmp")); got != "MPICH" || err != nil {
		t.Errorf("it is built for %q, %v", got, err)
	}
	t.Setenv("PATH", "/bin/none")
	f, err := Find(context.Background(), "mpich", "", filepath.Dir(venv))
	if err != nil || f.Word != filepath.Join(venv, "bin/mpiexec") {
		t.Errorf("%+v, %v", f, err)
	}
	if got, _ := Library(filepath.Join(environment(t, "libmpi.so.40"), "bin/lmp")); got != "Open MPI" {
		t.Errorf("it is built for %q", got)
	}
	script := filepath.Join(t.TempDir(), "lmp")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Library(script); got != "" || err == nil {
		t.Errorf("a script of no environment: %q, %v", got, err)
	}
}
