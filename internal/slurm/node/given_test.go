package node

import (
	"strings"
	"testing"
)

// shown is the output of scontrol of Slurm 22.05 for a job of two nodes, shortened.
const shown = `JobId=12 JobName=wrap
   UserId=nmtest1(4241) GroupId=nmtest1(4241) MCS_label=N/A
   NumNodes=2 NumCPUs=6 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   JOB_GRES=region:256M
     Nodes=n1 CPU_IDs=0-3 Mem=4000 GRES=region:128M
     Nodes=n[2-3] CPU_IDs=2,5 Mem=0 GRES=
   MinCPUsNode=1 MinMemoryNode=4000M MinTmpDiskNode=0
   Command=/bin/true
`

func TestParseGiven(t *testing.T) {
	for host, want := range map[string]struct {
		cpus   string
		memory uint64
	}{"n1": {"0-3", 4000 << 20}, "n3": {"2,5", 0}} {
		cpus, memory, err := parseGiven(shown, "12", host)
		if err != nil || cpus != want.cpus || memory != want.memory {
			t.Errorf("%s: %q, %d, %v", host, cpus, memory, err)
		}
	}
	// The other component of a heterogeneous job is on the same host.
	het := strings.Replace(shown, "JobId=12 ", "JobId=12 HetJobId=12 HetJobOffset=0 ", 1) +
		strings.Replace(strings.ReplaceAll(shown, "0-3", "4-7"), "JobId=12 ", "JobId=13 HetJobId=12 HetJobOffset=1 ", 1)
	if cpus, _, err := parseGiven(het, "13", "n1"); err != nil || cpus != "4-7" {
		t.Errorf("%q, %v", cpus, err)
	}
}

// Checks that a user gains nothing from a job name or comment that resembles scontrol's lines.
func TestGivenForged(t *testing.T) {
	line := "\n     Nodes=n1 CPU_IDs=0-63 Mem=900000 GRES=\n"
	for what, text := range map[string]string{
		"name":    strings.Replace(shown, "JobName=wrap", "JobName=x"+line, 1),
		"record":  strings.Replace(shown, "JobName=wrap", "JobName=x\nJobId=12 JobName=y"+line, 1),
		"command": shown + line,
		"another": "JobId=11 JobName=x" + line,
		"host":    strings.ReplaceAll(shown, "Nodes=n1 ", "Nodes=n10 "),
		"":        "",
	} {
		if cpus, _, err := parseGiven(text, "12", "n1"); err == nil {
			t.Errorf("%s: %q was taken", what, cpus)
		}
	}
}

func FuzzParseGiven(f *testing.F) {
	f.Add(shown)
	f.Add("JobId=12 \n Nodes=n[1 CPU_IDs=0 Mem=1 GRES=")
	f.Fuzz(func(t *testing.T, text string) {
		if cpus, _, err := parseGiven(text, "12", "n1"); err == nil && !strings.Contains(text, "CPU_IDs="+cpus+" ") {
			t.Errorf("%q", cpus)
		}
	})
}
