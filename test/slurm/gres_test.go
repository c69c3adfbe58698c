package slurm

import (
	"regexp"
	"strings"
	"testing"

	"nearmetal/slurm/examples"
	"nearmetal/test/slurm/bed"
)

// With the job_submit.lua that we ship, --vm-vf and --vm-region are all that a user says: the
// job has the GRES. The jobs are held, so no VM boots.
func TestJobSubmit(t *testing.T) {
	b, err := bed.Start(bed.Options{
		Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugstack(),
		Extra: "JobSubmitPlugins=lua\nGresTypes=vf,region\nNodeName=other NodeHostname=nowhere NodeAddr=127.0.0.1 Gres=vf:mlx5:2,vf:igb:1,region:1G\n",
		Files: map[string]string{
			"job_submit.lua": examples.JobSubmit,
			"gres.conf":      "NodeName=other Name=vf Type=mlx5 Count=2\nNodeName=other Name=vf Type=igb Count=1\nNodeName=other Name=region Count=1G\n",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	run := func(name string, args ...string) (string, error) {
		out, err := b.Command(name, args...).CombinedOutput()
		return string(out), err
	}
	jobID := regexp.MustCompile(`Submitted batch job (\d+)`)
	gres := regexp.MustCompile(`TresPerNode=(\S+)`)
	prefix := "gres:"
	if atLeast(t, 23, 11) {
		prefix = "gres/"
	}
	for _, c := range []struct {
		args string
		want string // TresPerNode, each with the prefix of the Slurm that runs
	}{
		{"", ""},
		{"--vm", ""},
		{"--vm --vm-region=512M", "region:536870912"},
		{"--vm=region=512M,vf=mlx5:2", "region:536870912 vf:mlx5:2"},
		{"--vm --vm-vf=1", "vf:1"},
		{"--vm --vm-region=512M --gres=region:768M", "region:768M"},
		{"--vm --vm-vf=igb:1 --gres=region:768M", "region:768M vf:igb:1"},
		{"--vm --vm-region=0", ""},
	} {
		args := append([]string{"--hold", "--nodelist=other", "--wrap", "true"}, strings.Fields(c.args)...)
		out, err := run("sbatch", args...)
		m := jobID.FindStringSubmatch(out)
		if err != nil || m == nil {
			t.Errorf("sbatch %s: %v: %s", c.args, err, out)
			continue
		}
		out, err = run("scontrol", "show", "job", "-o", m[1])
		if err != nil {
			t.Errorf("scontrol: %v: %s", err, out)
			continue
		}
		got := ""
		if m := gres.FindStringSubmatch(out); m != nil {
			got = m[1]
		}
		for _, w := range strings.Fields(c.want) {
			if !strings.Contains(","+got+",", ","+prefix+w+",") {
				t.Errorf("sbatch %s: TresPerNode=%s, want %s", c.args, got, c.want)
			}
		}
		if strings.Count(got, "gres") != len(strings.Fields(c.want)) {
			t.Errorf("sbatch %s: TresPerNode=%s, want %s", c.args, got, c.want)
		}
	}
	// More than there is, is refused at once, where it was typed.
	if out, err := run("sbatch", "--vm", "--vm-vf=mlx5:3", "--wrap", "true"); err == nil || !strings.Contains(out, "Requested node configuration is not available") {
		t.Errorf("three VFs of two: %v: %s", err, out)
	}
}
