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

// What a VM takes is the job's, in sstat.
func TestAccounting(t *testing.T) {
	needCgroups(t)
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugstack(), Cgroup: true,
		Extra: fmt.Sprintf("JobAcctGatherType=jobacct_gather/cgroup\nJobAcctGatherFrequency=task=1\nFirstJobId=%d\n", 1000+os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)
	// 100 MiB that the VM has to have.
	cmd := a.command(t, "sbatch", "--parsable", "-n1", "--mem=1000", "--vm="+small, "-o", a.home+"/out",
		"--wrap", "srun sh -c 'head -c 100M /dev/zero >/tmp/some; : >up; sleep 600'")
	cmd.Env = b.Environ(a.name, a.home)
	os.Remove(filepath.Join(a.home, "up"))
	r := finish(t, cmd, "")
	id := strings.TrimSpace(r.out)
	if err := bed.Await("the step", func() bool { _, err := os.Stat(a.home + "/up"); return err == nil }); err != nil {
		t.Fatalf("%+v %v\n%s", r, err, b.Logs())
	}
	var text string
	err = bed.Await("what the VM takes", func() bool {
		out, _ := b.Command("sstat", "-n", "-P", "--noconvert", "-j", id+".extern", "-o", "AveRSS,MaxRSS,AveCPU").CombinedOutput()
		text = string(out)
		f := strings.Split(strings.TrimSpace(text), "|")
		if len(f) != 3 {
			return false
		}
		average, _ := strconv.ParseFloat(f[0], 64)
		most, _ := strconv.ParseFloat(f[1], 64)
		return average > 100<<20 && most > 100<<20 && average < 1000<<20 && seconds(f[2]) >= 1
	})
	if err != nil {
		t.Errorf("%v: sstat has %s\n%s", err, text, b.Logs())
	}
	b.Command("scancel", id).Run()
	if err := bed.Await("the end of the job", func() bool { return gone(b, id) }); err != nil {
		t.Errorf("%v: left are %v\n%s\n%s", err, cgroupsOf(id), leftoversOf(id), b.Logs())
	}
}

// seconds reads "[D-]HH:MM:SS[.MMM]".
func seconds(text string) (sum float64) {
	text, _, _ = strings.Cut(strings.ReplaceAll(text, "-", ":"), ".")
	for _, part := range strings.Split(text, ":") {
		n, _ := strconv.ParseFloat(part, 64)
		sum = sum*60 + n
	}
	return sum
}
