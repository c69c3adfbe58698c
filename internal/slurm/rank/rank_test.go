package rank

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/plan"
	"nearmetal/internal/slurm/node"
)

func TestCommand(t *testing.T) {
	old, err := command([]string{"/opt/nearmetal-task", "-n", "3"}, "/bin/app")
	if err != nil || strings.Join(old, " ") != "/bin/app -n 3" {
		t.Errorf("%q, %v", old, err)
	}
	now, err := command([]string{"/opt/nearmetal-task", "/bin/app", "-n"}, "")
	if err != nil || strings.Join(now, " ") != "/bin/app -n" {
		t.Errorf("%q, %v", now, err)
	}
	if _, err := command([]string{"nearmetal-task"}, ""); err == nil {
		t.Error("no command was taken")
	}
}

func TestTask(t *testing.T) {
	env := map[string]string{"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
	task, err := readTask(func(n string) string { return env[n] })
	if err != nil || task.rank != 5 || task.size != 7 || fmt.Sprint(task.tasks) != "[2 2 2 1]" || task.vm(2) != 1 || task.vm(1) != 0 {
		t.Errorf("%+v, %v", task, err)
	}
	env["SLURM_NODEID"] = "4"
	if _, err := readTask(func(n string) string { return env[n] }); err == nil {
		t.Error("a node that is not the step's was taken")
	}
	for _, bad := range []string{"", "2(x", "2(x0)", "x", "1(x99999999)", "-1"} {
		if l, err := tasksPerNode(bad); err == nil {
			t.Errorf("%q: %v", bad, l)
		}
	}
}

func TestVMOf(t *testing.T) {
	got := ""
	for i := range 5 {
		got += fmt.Sprint(vmOf(i, 5, 2))
	}
	if got != "00011" {
		t.Error(got)
	}
	if vmOf(0, 1, 4) != 0 {
		t.Error("one task is not in the first VM")
	}
}

func TestRewriteMapping(t *testing.T) {
	for _, c := range []struct {
		in        string
		size, vms int
		want      string
	}{
		{"(vector,(0,2,4))", 8, 2, "(vector,(0,4,2))"},                                                         // blocks
		{"(vector,(0,2,1))", 8, 2, "(vector,(0,1,1),(2,1,1),(0,1,1),(2,1,1),(1,1,1),(3,1,1),(1,1,1),(3,1,1))"}, // round-robin
		{"(vector,(0,1,3),(1,1,1))", 4, 2, "(vector,(0,1,2),(1,2,1))"},
		{"cmd=get_result rc=0 value=(vector,(0,1,2))", 2, 2, "cmd=get_result rc=0 value=(vector,(0,2,1))"},
		{"cmd=get_result rc=0 value=other", 2, 2, "cmd=get_result rc=0 value=other"},
	} {
		if got, err := rewriteMapping(c.in, c.size, c.vms); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	if got, err := rewriteMapping("(vector,(0,0,1))", 2, 2); err == nil {
		t.Error("no nodes give", got)
	}
}

func FuzzRewriteMapping(f *testing.F) {
	f.Add("(vector,(0,2,4))", 8, 2)
	f.Fuzz(func(t *testing.T, text string, size, vms int) {
		rewriteMapping(text, size&1023, vms&15)
	})
}

// Checks that a rank communicates with the process manager, and that several VMs of a node are separate nodes in the
// mapping.
func TestPMISession(t *testing.T) {
	rank, ours := net.Pipe()
	pmOurs, pm := net.Pipe()
	go pmiSession(ours, pmOurs, 4, 2)
	r, p := bufio.NewReader(rank), bufio.NewReader(pm)
	expect := func(from *bufio.Reader, want string) {
		t.Helper()
		if line, err := from.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
	}
	go fmt.Fprintln(rank, "cmd=init pmi_version=1 pmi_subversion=1")
	expect(p, "cmd=init pmi_version=1 pmi_subversion=1")
	go fmt.Fprintln(pm, "cmd=get_result rc=0 value=(vector,(0,1,4))")
	expect(r, "cmd=get_result rc=0 value=(vector,(0,2,2))")
	rank.Close()
	if _, err := p.ReadString('\n'); err == nil {
		t.Error("the end of the rank did not end the process manager's connection")
	}
}

func TestVCPUs(t *testing.T) {
	v := &plan.VM{VCPUs: 4, Pins: [][]int{{2}, {3}, {6}, {7}}}
	if !pinned(v) || pinned(&plan.VM{VCPUs: 1, Pins: [][]int{{2, 3}}}) || pinned(&plan.VM{VCPUs: 1}) {
		t.Error("what is pinned")
	}
	on := func(cpus ...int) func(int) bool {
		return func(c int) bool { return slices.Contains(cpus, c) }
	}
	for _, c := range []struct {
		bound func(int) bool
		want  []int
	}{{on(3, 6), []int{1, 2}}, {on(2, 3, 6, 7), nil}, {on(0), nil}} {
		if got := boundVCPUs(v, c.bound); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	// Not pinned: shares in the order of the VM's tasks.
	for _, c := range []struct {
		local, tasks, vm, vms, n int
		want                     []int
	}{
		{0, 2, 0, 1, 4, []int{0, 1}}, {1, 2, 0, 1, 4, []int{2, 3}}, {0, 1, 0, 1, 4, nil},
		{3, 4, 1, 2, 2, []int{1}}, {2, 4, 1, 2, 2, []int{0}}, {5, 6, 0, 1, 4, []int{1}}, {1, 3, 0, 1, 4, []int{1}},
	} {
		if got := shareVCPUs(&task{local: c.local, tasks: []int{c.tasks}}, c.vm, c.vms, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Checks that a step's own VMs run and are isolated according to the site's settings, like those of the job.
func TestFromPlugin(t *testing.T) {
	t.Setenv(varIsolation, "strict")
	t.Setenv(varAccel, "tcg")
	t.Setenv(varMemory, "2GiB")
	t.Setenv(varDevices, "0000:41:10.0 0000:41:10.1")
	var a node.Allocation
	if err := fromPlugin(&a); err != nil || a.Isolation != "strict" || a.Accel != "tcg" || a.Bytes != 2<<30 || len(a.Devices) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	// If the plugin does not set it, the site has made no choice.
	t.Setenv(varAccel, "")
	if err := fromPlugin(&a); err != nil || a.Accel != "auto" || a.Limit != 5*time.Minute {
		t.Errorf("%+v, %v", a, err)
	}
	t.Setenv(varBootTimeout, "70s")
	if err := fromPlugin(&a); err != nil || a.Limit != 70*time.Second {
		t.Errorf("%+v, %v", a, err)
	}
	for _, bad := range []string{"70", "-1s", "soon"} {
		t.Setenv(varBootTimeout, bad)
		if err := fromPlugin(&a); err == nil {
			t.Errorf("%s=%q is taken", varBootTimeout, bad)
		}
	}
	t.Setenv(varBootTimeout, "")
	// An unknown value prevents all VMs from starting.
	a.Isolation = "strickt"
	r, err := node.ParseRequest("1 vms=1")
	if err == nil {
		_, err = node.Boot(context.Background(), r, a)
	}
	if err == nil || !strings.Contains(err.Error(), "strickt") {
		t.Errorf("%v", err)
	}
}
