package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownRuntime makes a directory of clusters for the test's commands.
func ownRuntime(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp(top, "run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
}

func TestPs(t *testing.T) {
	c := shared(t)
	r := nm(t, "ps").want(t, 0)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != "NAME STATE VMS VCPUS MEMORY ACCEL BACKEND AGE COMMAND" {
		t.Fatalf("%q", r.out)
	}
	if f := strings.Fields(lines[1]); len(f) < 8 || strings.Join(f[:5], " ") != "shared ready 2 2 2GiB" {
		t.Errorf("%q", lines[1])
	}
	r = nm(t, "ps", c).want(t, 0)
	if lines := strings.Split(strings.TrimSpace(r.out), "\n"); len(lines) != 4 ||
		!strings.HasPrefix(lines[3], "messages between VMs go by the region") ||
		strings.Join(strings.Fields(lines[2])[:5], " ") != "vm1 ready 1 1GiB 10.77.0.2" {
		t.Errorf("%q", r.out)
	}

	type record struct {
		Name, State, Accel string
		Owner              int
		Created            time.Time
		VMs                []struct {
			Name, State, IP string
			VCPUs, PID      int
			MemoryBytes     uint64
			ReadyNs         int64
		}
		Plan struct{ VMs []struct{ Name string } }
	}
	var list []record
	if err := json.Unmarshal([]byte(nm(t, "ps", "--json").want(t, 0).out), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %+v", err, list)
	}
	var one record
	if err := json.Unmarshal([]byte(nm(t, "ps", c, "--json").want(t, 0).out), &one); err != nil {
		t.Fatal(err)
	}
	for _, r := range []record{list[0], one} {
		if r.Name != c || r.State != "ready" || r.Owner == 0 || time.Since(r.Created) > time.Hour || len(r.VMs) != 2 || len(r.Plan.VMs) != 2 {
			t.Fatalf("%+v", r)
		}
		if v := r.VMs[1]; v.Name != "vm1" || v.State != "ready" || v.IP != "10.77.0.2" || v.VCPUs != 1 || v.PID == 0 || v.MemoryBytes != 1<<30 || v.ReadyNs <= 0 {
			t.Errorf("%+v", v)
		}
	}
}

func TestHostfile(t *testing.T) {
	c := shared(t)
	for format, want := range map[string]string{
		"openmpi": "vm0 slots=1\nvm1 slots=1\n",
		"mpich":   "vm0:1\nvm1:1\n",
		"slurm":   "vm0\nvm1\n",
		"pdsh":    "vm0\nvm1\n",
	} {
		if r := nm(t, "hostfile", c, "--format", format).want(t, 0); r.out != want {
			t.Errorf("%s: %q", format, r.out)
		}
	}
}

// Plain mpirun in a shell with the cluster's variables puts its ranks into the VMs, and
// not any more once they are taken back: also after the cluster's end.
func TestEnv(t *testing.T) {
	needs(t, "mpirun")
	c := shared(t)
	script := `eval $("$0" env ` + c + `)
		mpirun -n 2 hostname | sort
		NEARMETAL_RUNTIME_DIR=/nonexistent eval $("$0" env --unset)
		env | grep -cE 'NEARMETAL_(CLUSTER|LAUNCH)|HYDRA|OMPI_MCA|PRTE'
		test "$(mpirun --allow-run-as-root -n 1 hostname)" = "$(hostname)" && echo native again`
	cmd := command(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, nearmetal}
	if r := finish(t, cmd, ""); r.out != "vm0\nvm1\n0\nnative again\n" {
		t.Errorf("%q\n%s", r.out, r.err)
	}
	// The same in a shell of nearmetal's.
	cmd = command(t, "shell", c, "--host")
	cmd.Env = append(cmd.Environ(), "SHELL=/bin/sh")
	r := finish(t, cmd, "echo $NEARMETAL_CLUSTER; mpirun -n 2 hostname | sort; exit 4\n").want(t, 4)
	if r.out != "shared\nvm0\nvm1\n" {
		t.Errorf("%q\n%s", r.out, r.err)
	}
}

func TestUnsetWithoutCluster(t *testing.T) {
	ownRuntime(t)
	cmd := command(t, "env", "--unset")
	cmd.Env = append(cmd.Environ(), "NEARMETAL_CLUSTER=gone", "NEARMETAL_LAUNCH=NEARMETAL_CLUSTER:HYDRA_RMK")
	r := finish(t, cmd, "").want(t, 0)
	if r.out != "unset NEARMETAL_LAUNCH;\nunset NEARMETAL_CLUSTER;\nunset HYDRA_RMK;\n" {
		t.Errorf("%q", r.out)
	}
	if r := nm(t, "env", "--unset").want(t, 0); r.out != "" {
		t.Errorf("with nothing set: %q", r.out)
	}
}

// version says what VMs run on here: the same that a cluster does.
func TestVersion(t *testing.T) {
	c := shared(t)
	var facts, rec struct{ Version, QEMU, Accel string }
	if err := json.Unmarshal([]byte(nm(t, "version", "--json").want(t, 0).out), &facts); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(nm(t, "ps", c, "--json").want(t, 0).out), &rec); err != nil {
		t.Fatal(err)
	}
	if facts.Version == "" || facts.QEMU == "" || rec.Accel == "" || strings.Fields(facts.Accel)[0] != rec.Accel {
		t.Errorf("%+v, and the cluster's is %q", facts, rec.Accel)
	}
}

// Two clusters: which one is meant has to be said; logs follow until their end; down ends
// one, and all.
func TestTwoClusters(t *testing.T) {
	ownRuntime(t)
	nm(t, "down").want(t, 125, "no cluster runs: start one with nearmetal up")
	nm(t, "down", "--all").want(t, 0)
	nm(t, "exec", "true").want(t, 125, "no cluster runs")
	type ended struct {
		name string
		r    result
	}
	ups := make(chan ended)
	for _, name := range []string{"one", "two"} {
		cmd := command(t, append([]string{"up", "--name", name}, small...)...)
		go func() {
			out, _ := cmd.CombinedOutput()
			ups <- ended{name, result{out: string(out), code: cmd.ProcessState.ExitCode()}}
		}()
	}
	for range 2 {
		u := <-ups
		u.r.want(t, 0, u.name+"\n")
	}
	t.Cleanup(func() { nm(t, "down", "--all") })
	nm(t, "exec", "hostname").want(t, 125, "2 clusters run (")
	nm(t, "down").want(t, 125, "2 clusters run")
	nm(t, "down", "one", "--all").want(t, 2)

	cmd := command(t, "exec", "hostname")
	cmd.Env = append(cmd.Environ(), "NEARMETAL_CLUSTER=two")
	if r := finish(t, cmd, "").want(t, 0); r.out != "vm0\n" {
		t.Errorf("%q", r.out)
	}

	follow := command(t, "logs", "-f", "one")
	out, errs := newReader(), newReader()
	follow.Stdout, follow.Stderr = out, errs
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	nm(t, "exec", "-c", "one", "--as-root", "--", "sh", "-c", `printf 'mark\033[31m\r\n' >/dev/console`).want(t, 0)
	out.await(t, "mark?[31m\n")
	if r := nm(t, "logs", "one").want(t, 0); !strings.Contains(r.out, "mark?[31m\n") {
		t.Errorf("%q", r.out)
	}
	nm(t, "down", "one").want(t, 0)
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f when the cluster ends: %v, %s", err, errs)
	}
	if r := nm(t, "ps").want(t, 0); strings.Contains(r.out, "\none ") || !strings.Contains(r.out, "\ntwo ") {
		t.Errorf("%q", r.out)
	}
	nm(t, "down", "one").want(t, 125, `no cluster "one" runs`)
	nm(t, "down", "--all").want(t, 0)
	if r := nm(t, "ps").want(t, 0); strings.Contains(r.out, "\ntwo ") {
		t.Errorf("%q", r.out)
	}
	left, _ := filepath.Glob(os.Getenv("NEARMETAL_RUNTIME_DIR") + "/[a-z]*")
	if left != nil {
		t.Errorf("left: %q", left)
	}
}

// What a shell offers after tab: __complete is what its script calls.
func TestCompletion(t *testing.T) {
	c := shared(t)
	for _, e := range []struct {
		words []string
		want  string
	}{
		{[]string{"exec", "-c", ""}, c},
		{[]string{"down", ""}, c},
		{[]string{"down", "no"}, ""},
		{[]string{"shell", ""}, c},
		{[]string{"logs", "sh"}, c},
		{[]string{"exec", "-c", c, "--vm", ""}, "vm0 vm1"},
		{[]string{"exec", "--vm", ""}, "vm0 vm1"},
		{[]string{"shell", c, "--vm", ""}, "vm0 vm1"},
		{[]string{"logs", c, "--vm", "vm1"}, "vm1"},
		{[]string{"shell", "nope", "--vm", ""}, ""},
		{[]string{"hostfile", c, "--format", "p"}, "pdsh"},
	} {
		r := nm(t, append([]string{"__complete"}, e.words...)...).want(t, 0)
		var got []string
		for _, l := range strings.Split(r.out, "\n") {
			// The script drops what does not begin with what was typed.
			if l != "" && l[0] != ':' && strings.HasPrefix(l, e.words[len(e.words)-1]) {
				got = append(got, strings.SplitN(l, "\t", 2)[0])
			}
		}
		if strings.Join(got, " ") != e.want {
			t.Errorf("%q: offered %q, want %q", e.words, got, e.want)
		}
	}
}
