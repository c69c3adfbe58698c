package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with the options is said where they are typed, in one line of ours, and no
// job comes of it.
func TestWrongOptions(t *testing.T) {
	dir := scratch(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := file("bad.yaml", "version: 1\nvms:\n- memry: 1GiB\n")
	before := must(t, "scontrol", "show", "job", "-o")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--vm=vms=0"}, `--vm: vms: "0" is not a number of VMs: write 1 to 1024`},
		{[]string{"--vm=what=1"}, `--vm: "what=1" is not KEY=VALUE with a KEY of`},
		{[]string{"--vm=nofile"}, `--vm: "nofile" is neither KEY=VALUE,... nor a cluster file that can be found`},
		{[]string{"--vm=/no/such/file.yaml"}, "cluster file /no/such/file.yaml: No such file or directory"},
		{[]string{"--vm=" + bad}, bad + ":3:3: "},
		{[]string{"--vm", "--vm-memory=lots"}, `--vm-memory: "lots" is not the size of a VM's memory: write one like 2GiB`},
		{[]string{"--vm", "--vm-region=3M"}, `--vm-region: "3M" is not the size of a region: write a power of two`},
		{[]string{"--vm", "--vm-keep=forever"}, `--vm-keep: "forever" is neither job nor step`},
		{[]string{"--vm", "--vm-root=etc"}, `--vm-root: "etc" is neither host nor an absolute directory`},
		{[]string{"--vm", "--vm-vf=x"}, `--vm-vf: "x" is not a number of VFs`},
		{[]string{"--vm", "--vm-pages=3M"}, `--vm-pages: "3M" is not a size of pages: write 2MiB, 1GiB or ordinary`},
		{[]string{"--vm=" + file("good.yaml", "version: 1\n"), "--vm-pages=2M"}, "--vm-pages with a cluster file needs --vms-per-node and --vm-memory"},
		{[]string{"--vm", "--vm-policy=best"}, `--vm-policy: "best" is not a policy`},
		{[]string{"--vm", "--no-vm"}, "--vm and --no-vm cannot be given together"},
		{[]string{"--vm-traffic=counts"}, "--vm-traffic requires --vm"},
		{[]string{"--vm", "--vm-traffic=/" + strings.Repeat("x", 511)}, "--vm-traffic: the directory's name has 512 bytes or more"},
		{[]string{"--vm-memory=1G"}, "--vm-memory requires --vm"},
	} {
		r := slurm(t, "srun", append(c.args, "hostname")...)
		ours := 0
		for _, line := range strings.Split(r.err, "\n") {
			if strings.Contains(line, "nearmetal: ") {
				ours++
			}
		}
		if r.code == 0 || !strings.Contains(r.err, c.want) || ours != 1 {
			t.Errorf("srun %q: status %d, %d lines:\n%swant %q", c.args, r.code, ours, r.err, c.want)
		}
	}
	cmd := command(t, "srun", "hostname")
	cmd.Env = append(cmd.Env, "NEARMETAL_VM=1", "NEARMETAL_VM_VCPUS=many")
	if r := finish(t, cmd, ""); r.code == 0 || !strings.Contains(r.err, `NEARMETAL_VM_VCPUS: "many" is not a number of vCPUs`) {
		t.Errorf("a bad variable: %+v", r)
	}
	if r := slurm(t, "sbatch", "--vm=vms=x", "--wrap", "true"); r.code == 0 || !strings.Contains(r.err, "--vm: vms: ") {
		t.Errorf("sbatch: %+v", r)
	}
	if after := must(t, "scontrol", "show", "job", "-o"); after != before {
		t.Errorf("jobs came of it:\n%s", after)
	}
}

// A cluster file that belongs to another user and is closed to this one.
func TestOthersFile(t *testing.T) {
	a, b := newAccount(t, 1), newAccount(t, 2)
	path := filepath.Join(a.home, "mine.yaml")
	if err := os.WriteFile(path, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := b.run(t, "srun", "--vm="+path, "true")
	if r.code == 0 || !strings.Contains(r.err, "cluster file "+path+": Permission denied") {
		t.Errorf("%+v", r)
	}
}

// A relative path in NEARMETAL_VM is one of where srun was typed, for VMs of the job and of a step.
func TestRelativeVariable(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	dir := filepath.Join(a.home, "folder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "relative.yaml"), []byte("version: 1\nvms: [{memory: 256MiB, vcpus: 1}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []string{"job", "step"} {
		cmd := a.command(t, "srun", "-w", "n1", "-n1", "--mem=700", "hostname")
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "NEARMETAL_VM=relative.yaml", "NEARMETAL_VM_KEEP="+keep)
		if r := finish(t, cmd, ""); r.code != 0 || r.out != "n1-vm0\n" {
			t.Errorf("%s: %+v", keep, r)
		}
	}
}

// A job without --vm leaves no trace of the plugin.
func TestWithoutVM(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, "srun", "-N2", "hostname"); out != host+"\n"+host+"\n" {
		t.Errorf("%q", out)
	}
	if left := leftovers(); left != "" {
		t.Error(left)
	}
	cmd := command(t, "srun", "--no-vm", "hostname")
	cmd.Env = append(cmd.Env, "NEARMETAL_VM=1")
	if r := finish(t, cmd, ""); r.out != host+"\n" {
		t.Errorf("%+v", r)
	}
}
