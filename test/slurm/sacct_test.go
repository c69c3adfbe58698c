//go:build sacct

package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"nearmetal/test/slurm/bed"
)

// What a VM takes is the job's in sacct too: in its extern step, which has the VMs; the other steps have
// their wrappers only. `make test-slurm-sacct`.
func TestSacct(t *testing.T) {
	needCgroups(t)
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugstack(), Cgroup: true, Accounting: true,
		Extra: fmt.Sprintf("JobAcctGatherType=jobacct_gather/cgroup\nJobAcctGatherFrequency=task=1\nFirstJobId=%d\n", 1000+os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)
	cmd := a.command(t, "sbatch", "--parsable", "-W", "-n1", "--mem=1000", "--vm="+small, "-o", a.home+"/out", "--wrap",
		// 100 MiB that the VM has to have, and two seconds of its vCPU.
		"srun sh -c 'head -c 100M /dev/zero >/tmp/some; timeout 4 sh -c \"while :; do :; done\"; true'")
	cmd.Env = b.Environ(a.name, a.home)
	r := finish(t, cmd, "")
	id := strings.TrimSpace(r.out)
	if r.code != 0 {
		text, _ := os.ReadFile(filepath.Join(a.home, "out"))
		t.Fatalf("%+v\n%s\n%s", r, text, b.Logs())
	}
	type step struct {
		rss   float64 // bytes
		cpu   float64 // seconds
		state string
	}
	var steps map[string]step
	var text string
	err = bed.Await("sacct's word on all steps", func() bool {
		out, err := b.Command("sacct", "-n", "-P", "--noconvert", "-j", id, "--format=JobID,MaxRSS,AveCPU,State").CombinedOutput()
		text, steps = string(out), map[string]step{}
		for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
			f := strings.Split(line, "|")
			if err != nil || len(f) != 4 || f[3] != "COMPLETED" {
				return false
			}
			rss, _ := strconv.ParseFloat(f[1], 64)
			steps[strings.TrimPrefix(f[0], id)] = step{rss, seconds(f[2]), f[3]}
		}
		return len(steps) == 4
	})
	if err != nil {
		t.Fatalf("%v: it says\n%s\n%s", err, text, b.Logs())
	}
	t.Logf("sacct:\n%s", text)
	if s := steps[".extern"]; s.rss < 100<<20 || s.rss > 1000<<20 || s.cpu < 2 {
		t.Errorf("the extern step, which has the VM: %+v\n%s", s, text)
	}
	for _, name := range []string{".0", ".batch"} {
		if s := steps[name]; s.rss > 100<<20 {
			t.Errorf("step %s has no VM: %+v\n%s", name, s, text)
		}
	}
}
