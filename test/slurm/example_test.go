package slurm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nearmetal/test/slurm/bed"
)

// What `nearmetal slurm example` prints for this host is a Slurm that runs, with jobs in VMs: but
// for its places and ports, and for how this machine mounts its cgroups, as it stands.
func TestExample(t *testing.T) {
	dir := filepath.Join(scratch(t), "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, bin+"/nearmetal", "-q", "slurm", "example", "--dir", dir)
	files := map[string]string{}
	for _, name := range []string{"slurm.conf", "gres.conf", "cgroup.conf", "mpi.conf", "plugstack.conf", "job_submit.lua"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	node := regexp.MustCompile(`(?m)^NodeName=(\S+)`).FindStringSubmatch(files["slurm.conf"])
	if node == nil {
		t.Fatalf("no node:\n%s", files["slurm.conf"])
	}
	site := files["slurm.conf"]
	delete(files, "slurm.conf")
	if _, err := os.Stat("/sys/fs/cgroup/freezer"); err == nil {
		files["cgroup.conf"] += "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"
	}
	// The plugin and the program are not installed here.
	files["plugstack.conf"] = strings.Replace(files["plugstack.conf"], "spank_nearmetal.so", bin+"/c/slurm/spank_nearmetal.so nearmetal="+bin+"/nearmetal state="+state, 1)
	b, err := bed.Start(bed.Options{Site: site, Node: node[1], Files: files})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	out, err := b.Command(bin+"/nearmetal", "slurm", "doctor", "--conf", b.Conf()).CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		// What the limits of this machine and its CPUs are is not the example's.
		row := strings.Fields(line)
		if strings.HasPrefix(line, "fail") && row[1] != "kvm" && row[1] != "memlock" {
			t.Errorf("doctor: %s", line)
		}
	}
	if !strings.Contains(string(out), "ok       cgroup") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	a := newAccount(t, 1)
	cmd := a.command(t, "srun", "-n1", "--mem=1000", "--vm=region=16MiB,"+small, "sh", "-c", "hostname; ls /dev/nearmetal/region")
	cmd.Env = b.Environ(a.name, a.home)
	r := finish(t, cmd, "")
	host := strings.ToLower(node[1]) + "-vm0"
	if r.code != 0 || !strings.Contains(r.out, host) || !strings.Contains(r.out, "/dev/nearmetal/region") {
		t.Errorf("%+v\n%s", r, b.Logs())
	}
}
