package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/cluster"
	"nearmetal/internal/spec"
)

// A VM is NAME/VM in every command.
func TestTargets(t *testing.T) {
	lab(t)
	up(t, "one", 2)
	up(t, "two", 2)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const which = `tr '\0' '\n' </proc/$PPID/cmdline | grep -A1 -x -e --name | tail -1` // a fake VM's agent has its name
	for _, c := range []struct {
		args string
		code int
		want string // in the output or the errors
	}{
		{"exec one/vm1 -- echo it is", 0, "it is\n"},
		{"exec one -- echo it is", 0, "it is\n"},
		{"exec --each one -- echo it is", 0, "vm1: it is\n"},
		{"exec --each --vm vm1 one -- true", 2, "--each and --vm cannot be given together"},
		{"exec -c one --vm vm1 echo it is", 0, "it is\n"},
		{"exec -c one -- echo -- it is", 0, "-- it is\n"}, // a program, and no target
		{"exec -c two one/vm1 -- true", 2, "one and -c two name two clusters"},
		{"exec --all one/vm1 -- true", 2, "the VM is vm1: leave out --vm and --all"},
		{"exec one/vm7 -- true", 125, `cluster one has no VM "vm7": it has vm0, vm1`},
		{"exec three/vm0 -- true", 125, `no cluster "three" runs`},
		{"exec vm1 -- true", 125, `no cluster "vm1" runs: did you mean the VM one/vm1?`},
		{"exec one/vm1 --", 2, "one/vm1 is a VM: exec needs a COMMAND"},
		{"exec one echo it is", 0, "it is\n"},
		{"exec one/vm1 echo it is", 0, "it is\n"},
		{"exec one echo -- it is", 0, "-- it is\n"},
		{"exec one", 2, "one is a cluster: exec needs a COMMAND"},
		{"exec -c one -- one", 127, "one: no such program"},
		{"exec -c one one x", 127, "one: no such program"},
		{"exec -c one two", 127, "two: no such program"},
		{"exec hostname", 125, "2 clusters run (one, two): name one of them"},
		{"exec three hostname", 125, `no cluster "three" runs`},
		{"exec one/vm7 hostname", 125, `cluster one has no VM "vm7": it has vm0, vm1`},
		{"exec one/vm0/x hostname", 125, "2 clusters run (one, two)"},
		{"shell vm1", 125, "did you mean the VM one/vm1?"},
		{"exec one vm1 -- true", 2, "write exec one/vm1 -- COMMAND"},
		{"exec one/vm1", 2, "one/vm1 is a VM: exec needs a COMMAND"},
		{"exec -c one one/vm7 x", 127, "one/vm7"}, // a program that is not there
		{"shell one/vm1 --vm vm0", 2, "one/vm1 and --vm vm0 name two VMs"},
		{"shell one/vm1 --host", 2, "leave out the VM vm1"},
		{"logs one/vm1", 0, "fake VM vm1 is up"},
		{"logs one --vm vm1", 0, "fake VM vm1 is up"},
		{"logs one/vm9", 125, `has no VM "vm9"`},
		{"ps one/vm1", 0, "vm1"},
		{"env one/vm1", 2, "one/vm1 is a VM, and env is about a whole cluster: write one"},
		{"hostfile one/vm1", 2, "one/vm1 is a VM"},
		{"down one/vm1", 2, "one/vm1 is a VM"},
		{"down two one/vm1", 2, "one/vm1 is a VM"},
		{"ps two", 0, "vm0"}, // none has ended
		{"cp one/vm1:/no/such " + file, 125, "vm1:/no/such: No such file or directory"},
		{"cp -r " + file + " two/vm1:" + file + ".copy", 0, ""},
		{"cp -c two one/vm1:/x .", 2, "one and -c two name two clusters"},
		{"cp one/vm1:/x two/vm1:/y", 2, "exactly one of FROM and TO may be in a VM: copy one/vm1:/x to this host first"},
		{"cp " + file + " " + file, 2, "NAME:PATH or NAME/VM:PATH"},
		{"cp " + file + " two:" + file + ".first", 0, ""},
		{"cp -c two " + file + " two:" + file + ".named", 0, ""},
		{"cp two:" + file + ".first " + file + ".back", 0, ""},
		{"cp " + file + " vm0:/x", 125, "vm0:/x: 2 clusters run (one, two): name one of them: write NAME:PATH or NAME/VM:PATH"},
		{"cp " + file + " three:/x", 125, "three:/x: 2 clusters run (one, two): name one of them: write NAME:PATH or NAME/VM:PATH"},
		{"cp -c two " + file + " vm7:/x", 125, `cluster two has no VM "vm7": it has vm0, vm1, and no cluster "vm7" runs: write NAME:PATH or NAME/VM:PATH`},
		{"cp -c two " + file + " one:/x", 125, "write NAME:PATH or NAME/VM:PATH"},
		{"cp " + file + " three/vm0:/x", 125, `no cluster "three" runs`},
		{"cp " + file + " one:x", 125, "vm0:x: a path in a VM must be absolute"},
	} {
		out, errs, code := answer(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: %d, %q, %q; want %d, %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	// What a VM says of itself has its name in front once.
	if _, errs, code := answer(t, "exec", "--all", "one", "--", "/no/such"); code != 127 || strings.Count(errs, "nearmetal: vm1: ") != 1 || strings.Contains(errs, "vm1: vm1: ") {
		t.Errorf("exec --all of no program: %d, %s", code, errs)
	}
	if out, _, _ := answer(t, "ps", "one/vm1"); strings.Contains(out, "vm0") {
		t.Errorf("ps of a VM shows another: %s", out)
	}
	for _, vm := range []string{"vm0", "vm1"} {
		if out, errs, _ := answer(t, "exec", "one/"+vm, "--", "sh", "-c", which); out != vm+"\n" {
			t.Errorf("exec one/%s ran in %q (%s)", vm, out, errs)
		}
	}
	for _, end := range []string{".copy", ".first", ".named", ".back"} {
		if _, err := os.Stat(file + end); err != nil {
			t.Error(err)
		}
	}
	// A program of a cluster's name is reached by "--" before it.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "one"), []byte("#!/bin/sh\necho a program: $*\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("NEARMETAL_CLUSTER", "two")
	for args, want := range map[string]string{"exec -- one x": "a program: x\n", "exec -c two one x": "a program: x\n", "exec one echo x": "x\n"} {
		if out, errs, code := answer(t, strings.Fields(args)...); code != 0 || out != want {
			t.Errorf("%s: %d, %q, %q", args, code, out, errs)
		}
	}
	for _, args := range []string{"exec -c two vm1 x", "exec -- vm1 x"} {
		if _, errs, code := answer(t, strings.Fields(args)...); code != 127 || strings.Contains(errs, "no cluster") {
			t.Errorf("%s: %d, %s", args, code, errs)
		}
	}
	// Neither a cluster nor a program.
	if _, errs, code := answer(t, "exec", "vm1", "hostname"); code != 127 || !strings.Contains(errs, `no cluster "vm1" runs: did you mean the VM one/vm1?`) {
		t.Errorf("exec of no program: %d, %s", code, errs)
	}
}

// VMs that the cluster file names are called so by every command.
func TestNamedVMs(t *testing.T) {
	lab(t)
	upWith(t, "named", 0, cluster.Start{Spec: &spec.Cluster{VMs: []spec.Group{{Names: []string{"login", "gpu-7"}, VCPUs: 1, Memory: 128 << 20}}}})
	if out, errs, code := answer(t, "ps", "named"); code != 0 || !strings.Contains(out, "login") || !strings.Contains(out, "gpu-7") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	for _, vm := range []string{"login", "gpu-7"} {
		if out, errs, code := answer(t, "exec", "named/"+vm, "--", "echo", "here"); code != 0 || !strings.HasSuffix(out, "here\n") {
			t.Errorf("%s: %d, %q, %q", vm, code, out, errs)
		}
	}
	if _, errs, code := answer(t, "exec", "named/vm0", "--", "true"); code == 0 {
		t.Errorf("vm0 is there: %q", errs)
	}
}
