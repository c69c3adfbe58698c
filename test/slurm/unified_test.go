//go:build unified

package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// standIn is a nearmetal whose VMs are a process that sleeps: what Slurm does with the VMs of a job is the same.
const standIn = `#!/bin/sh
case "$1 $2" in
"slurm-boot --check"*) ;;
slurm-boot*) setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo job ;;
esac
`

// inside runs on a host with the unified hierarchy alone: a job, what Slurm makes of its VMs, its end by $END.
const inside = `set -e
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
cd /sys/fs/cgroup
mkdir -p system.slice
# Slurm 22.05 does not know the last controller of a list: pids is not asked for.
for d in . system.slice; do echo "+cpuset +cpu +memory +pids" >$d/cgroup.subtree_control; done
cd $DIR
BED_CGROUP=2 ./bed sh -c '
set -e
job=$(sbatch --parsable -w n1 -n1 --mem=300 --vm -o /run/job.out --wrap "sleep 600")
n=0
while ! vm=$(pgrep -x sleep -a | sed -n "s/ sleep 1000$//p" | grep .); do n=$((n+1)); test $n -lt 600 || { cat $BED/log/*; exit 1; }; sleep 1; done
at=$(cut -d: -f3 /proc/$vm/cgroup)
echo "in ${at#*scope/job_$job/}"
echo "limit $(cat /sys/fs/cgroup$at/../memory.max)"
scontrol listpids $job n1 | grep -q "^$vm " && echo listed
case $END in kill) for p in $(pgrep -f "^slurmstepd: .$job[.]"); do kill -9 $p; done;; esac
scancel $job
n=0
while squeue -h | grep .; do n=$((n+1)); test $n -lt 600 || { cat $BED/log/*; exit 1; }; sleep 1; done >/dev/null
echo "left $(pgrep -a sleep | grep -c " 1000$") processes, $(find /sys/fs/cgroup/system.slice -name "job_*" -type d | wc -l) cgroups"
'
`

// With the unified hierarchy, on a host in a VM that has no other, the VMs of a job are in its extern step's cgroup
// and held by its memory limit, and nothing of it is left. `make test-slurm-unified`.
func TestUnifiedCgroups(t *testing.T) {
	dir := scratch(t)
	for _, d := range []string{"build/c/slurm"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plugin, err := os.ReadFile(filepath.Join(bin, "c/slurm/spank_nearmetal.so"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"build/c/slurm/spank_nearmetal.so": string(plugin), "build/nearmetal": standIn, "build/nearmetal-task": "#!/bin/sh\n",
		"inside": inside, "host.yaml": "version: 1\nname: unified\nkernelArgs: [cgroup_no_v1=all]\nvms:\n- memory: 2GiB\n  vcpus: 2\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bed"), "./bed/shell").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(words ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "nearmetal"), words...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("nearmetal %q: %v\n%s", words, err, out)
		}
		return string(out)
	}
	run("-q", "up", "-f", "host.yaml")
	defer run("-q", "down", "unified")
	for _, end := range []string{"scancel", "kill"} {
		got := run("exec", "-c", "unified", "env", "END="+end, "DIR="+dir, "sh", "inside")
		want := "in step_extern/user/task_special\nlimit 314572800\nlisted\nleft 0 processes, 0 cgroups\n"
		if !strings.HasSuffix(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", end, got, want)
		}
	}
}
