package launch

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func TestCalls(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string { return script(t, dir, name, text) }
	job := file("job.sh", "#!/bin/bash\n#SBATCH -n 4\nset -e\nmpirun -n 4 ./solver\n")
	for _, c := range []struct {
		want string
		argv []string
	}{
		{"mpirun", []string{job}},
		{"mpirun", []string{"bash", job}},
		{"mpirun", []string{"bash", "-eu", "-o", "pipefail", job, "argument"}},
		{"mpiexec", []string{"sh", "-c", "cd run && mpiexec -n 2 ./app"}},
		{"mpirun", []string{"bash", "-lc", "for i in 1 2; do mpirun ./app; done"}},
		{"mpirun", []string{"sh", "-c", `x=$(mpirun -n 1 hostname)`}},
		{"mpiexec.hydra", []string{file("b", "#!/usr/bin/env bash\n/opt/mpi/bin/mpiexec.hydra -n 2 ./app\n")}},
		{"mpirun", []string{file("c.py", "#!/usr/bin/python3\nsubprocess.run(['mpirun', '-n', '2', './app'])\n")}},
		{"mpirun", []string{file("d.py", "#!/usr/bin/python3\nos.system(\"mpirun -n 2 ./app\")\n")}},

		{"", []string{"hostname"}},
		{"", []string{"sh", "-c", "echo a; hostname"}},
		{"", []string{"sh"}},
		{"", []string{"sh", "-c"}},
		{"", []string{"sh", "/no/such/file"}},
		{"", []string{"sh", dir}},
		{"", []string{"no-such-program", job}}, // an argument, and not a script that is run
		{"", []string{file("e", "#!/bin/sh\n# mpirun -n 4 ./app runs it\nexec ./app # under mpirun\n")}},
		{"", []string{file("f", "#!/bin/sh\nmy_mpirun=1 ./app --mpirun x-mpirun mpirun.log\n")}},
		{"", []string{file("g.py", "#!/usr/bin/python3\n\"\"\"Run it as mpirun -n 4 ./g.py\"\"\"\n")}},
		{"", []string{file("h", "mpirun ./app\n")}}, // without #! the kernel does not run it
		{"", nil},
	} {
		if got, _ := Calls(c.argv, exec.LookPath); got != c.want {
			t.Errorf("%q: %q, want %q", c.argv, got, c.want)
		}
	}
	if _, name := Calls([]string{"bash", job}, exec.LookPath); name != filepath.Base(job) {
		t.Errorf("the script is called %q", name)
	}
}
