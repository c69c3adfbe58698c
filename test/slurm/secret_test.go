package slurm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The secret that joins a job's nodes stands in no environment and on no command line, of whatever process
// on the host: a guest that sees the host's /proc would find it there. Nor can a process of the job's
// user look into the supervisors that have it.
func TestSecret(t *testing.T) {
	for _, keep := range []string{"job", "step"} {
		t.Run(keep, func(t *testing.T) {
			defer clean(t)
			a := newAccount(t, 1)
			r := a.run(t, "sbatch", "--parsable", "-N2", "-n2", "--mem=700", "--vm="+small, "--vm-keep="+keep, "-o", a.home+"/log", "--wrap",
				`srun -N2 sh -c 'getent hosts n1-vm0 n2-vm0 | wc -l; : >up-`+keep+`.$(hostname); while ! test -e go-`+keep+`; do sleep 0.1; done'`)
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			job := strings.TrimSpace(r.out)
			defer slurm(t, "scancel", job)
			await(t, "the step in its VMs", func() bool {
				up, _ := filepath.Glob(a.home + "/up-" + keep + ".*")
				if strings.TrimSpace(must(t, "squeue", "-h", "-j", job)) == "" {
					log, _ := os.ReadFile(a.home + "/log")
					t.Fatalf("the job has ended:\n%s", log)
				}
				return len(up) == 2
			})
			lookForSecret(t, a, job)
			if err := os.WriteFile(a.home+"/go-"+keep, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			await(t, "the job's end", func() bool { return strings.TrimSpace(must(t, "squeue", "-h", "-j", job)) == "" })
			log, _ := os.ReadFile(a.home + "/log")
			if string(log) != "2\n2\n" {
				t.Errorf("the names of the VMs: %q", log)
			}
		})
	}
}

// The shell that salloc starts on the submit host, and what it starts, has the secret neither: Slurm puts what its
// plugins have for the prologs into salloc's environment (SLURM_SPANK_*).
func TestSecretOfSalloc(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	for _, name := range []string{"salloc.job", "salloc.go"} {
		os.Remove(filepath.Join(a.home, name))
	}
	cmd := a.command(t, "salloc", "-N2", "-n2", "--mem=700", "--vm="+small, "sh", "-c",
		`env | grep -c ^SLURM_SPANK_NEARMETAL_REQUEST=; env | grep SECRET; srun -N2 sh -c 'getent hosts n1-vm0 n2-vm0 | wc -l'
		echo $SLURM_JOB_ID >salloc.new; mv salloc.new salloc.job; while ! test -e salloc.go; do sleep 0.1; done`)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var job []byte
	var err error
	await(t, "the shell of salloc", func() bool {
		if job, err = os.ReadFile(a.home + "/salloc.job"); err == nil {
			return true
		}
		select {
		case end := <-ended:
			t.Fatalf("salloc: %v\n%s%s", end, out.String(), errs.String())
		default:
		}
		return false
	})
	lookForSecret(t, a, strings.TrimSpace(string(job)))
	if err := os.WriteFile(a.home+"/salloc.go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || out.String() != "1\n2\n2\n" {
		t.Errorf("%v: %q\n%s", err, out.String(), errs.String())
	}
}

// lookForSecret looks for the secret of a job that runs, in all processes of the host; and has a look at the job's
// supervisors as its user.
func lookForSecret(t *testing.T, a *account, job string) {
	t.Helper()
	hosts, err := os.ReadFile(filepath.Join(state, job+".n1", "hosts"))
	if err != nil || len(hosts) < 64 {
		t.Fatalf("%q, %v", hosts, err)
	}
	secret := hosts[:64]
	procs, _ := filepath.Glob("/proc/[0-9]*")
	supervisors := 0
	for _, p := range procs {
		line, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		for _, word := range append(bytes.Split(env, []byte{0}), bytes.Split(line, []byte{0})...) {
			if before, _, found := bytes.Cut(word, secret); found {
				t.Errorf("%s: the secret stands behind %q in the environment or the arguments of %q", p, before, line)
			}
		}
		if bytes.HasSuffix(line, []byte("\x00supervise\x00")) && bytes.Contains(env, []byte(state+"/"+job+".")) {
			supervisors++
			r := a.run(t, "sh", "-c", "cat "+p+"/environ "+p+"/maps "+p+"/mem; ls "+p+"/fd")
			if r.out != "" || strings.Count(r.err, "ermission denied") < 4 {
				t.Errorf("%s: the job's user reads of its supervisor: %+v", p, r)
			}
		}
	}
	if supervisors != 2 {
		t.Errorf("%d supervisors", supervisors)
	}
}
