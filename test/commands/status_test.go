package commands

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each exit status by command lines: nearmetal's own 0, 2, 3 and 125, and those of programs in VMs.
func TestExitStatus(t *testing.T) {
	lab(t)
	up(t, "one", 2)
	t.Setenv("NEARMETAL_CLUSTER", "one")
	host, err := filepath.Abs("../topology/r740.machine")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := filepath.Abs("../../internal/explain/testdata/plain.xml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":    "vms: [{vcpus: 1}]\n",
		"bad.yaml":     "vms: [{vcpus: many}]\n",
		"backend.yaml": "backend: none\n",
		"slurm.conf":   "ClusterName=x\nNodeName=n1\n",
		"flavors.json": `[{"Name": "small", "VCPUs": 1, "RAM": 512}]`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := func(text string) []string { return []string{"exec", "one/vm0", "--", "sh", "-c", text} }
	words := strings.Fields
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, words("version")},
		{0, words("spec validate good.yaml")},
		{0, words("plan --vms 1 --host " + host)},
		{0, words("exec one/vm0 -- true")},

		{2, words("no-such-command")},
		{2, words("ps --no-such-flag")},
		{2, words("spec validate")},
		{2, words("run --vms many -- true")},
		{2, words("rsh")},

		{3, words("spec validate good.yaml bad.yaml")},
		{3, words("spec validate backend.yaml")},
		{3, words("explain --host " + host + " " + domain)},
		{3, words("slurm doctor --conf slurm.conf --node n1 --root " + host)},
		{3, words("plan --vms 1 --vcpus 8 --match flavors.json --host " + host)},
		{3, words("verify one")}, // its VMs are processes

		{125, words("spec validate none.yaml bad.yaml")},
		{125, words("spec show bad.yaml")},
		{125, words("plan -f bad.yaml")},
		{125, words("plan --vms 1 --match none.json --host " + host)},
		{125, words("run -f none.yaml -- true")},
		{125, words("exec none/vm0 -- true")},
		{125, words("exec one/vm7 -- true")},
		{125, words("verify none")},
		{125, words("explain none.xml")},
		{125, words("bench compare none none")},

		{1, script("exit 1")},
		{3, script("exit 3")},
		{125, script("exit 125")},
		{137, script("kill -9 $$")},
		{126, words("exec one/vm0 -- /etc/passwd")},
		{127, words("exec one/vm0 -- /no/such")},
		{127, words("run -- ./none")},
		{1, words("rsh vm0 exit 1")},
		{255, words("rsh vm7 true")},
	} {
		var said bytes.Buffer
		cmd := exec.Command(program, c.args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%q: %d, want %d\n%s", c.args, code, c.code, &said)
		}
	}
	task := exec.Command(filepath.Join(filepath.Dir(program), "nearmetal-task"))
	if out, _ := task.CombinedOutput(); task.ProcessState == nil || task.ProcessState.ExitCode() != 125 {
		t.Errorf("nearmetal-task outside of a job: %v\n%s", task.ProcessState, out)
	}
}
