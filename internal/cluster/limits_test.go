package cluster

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/host/isolate"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
)

// What an owner that was killed leaves of a VM's cgroup, the next command ends and removes.
func TestGroupJournaled(t *testing.T) {
	parent, missing, err := isolate.GroupParent()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{journal: j, rec: Record{Name: "limits-test"}, groups: groups{parent, missing}}
	g, err := c.makeGroup(&plan.VM{Name: "vm0", VCPUs: 1, MemoryBytes: 64 << 20}, &prepared{plan: &plan.Plan{}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	g.Close()
	j.Close()
	words, err := undo(dir)
	if err != nil || len(words) != 1 || !strings.Contains(words[0], "cgroup "+parent) {
		t.Errorf("%q, %v", words, err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a process of the group: %v", err)
	}
	if words, err := undo(dir); err != nil || len(words) > 0 {
		t.Errorf("again: %q, %v", words, err)
	}
}

// A journal leads to cgroups of ours only.
func TestValidGroup(t *testing.T) {
	for path, good := range map[string]bool{
		"/sys/fs/cgroup/user.slice/nearmetal-1000-a-vm0": true,
		"/sys/fs/cgroup/system.slice":                    false,
		"/sys/fs/cgroup/nearmetal-1/..":                  false,
		"nearmetal-1":                                    false,
		"":                                               false,
	} {
		if err := validGroup(journal.Change{Kind: groupKind, Args: map[string]string{"path": path}}); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// What a host lacks of isolation: strict is said once, or an error where that is demanded.
func TestLack(t *testing.T) {
	var said []string
	notice := func(line string) { said = append(said, line) }
	missing := errors.New("no cgroups")
	if err := lack("x", nil, true, notice); err != nil || said != nil {
		t.Errorf("%v, %q", err, said)
	}
	if err := lack("x", missing, true, notice); !errors.Is(err, missing) || said != nil {
		t.Errorf("%v, %q", err, said)
	}
	if err := lack("x", missing, false, notice); err != nil || len(said) != 1 || !strings.Contains(said[0], "no cgroups") {
		t.Errorf("%v, %q", err, said)
	}
}

func TestLimitsOf(t *testing.T) {
	l := limitsOf(&plan.VM{VCPUs: 4, MemoryBytes: 1 << 30}, &plan.Region{SizeBytes: 64 << 20})
	if want := (isolate.Limits{MemoryBytes: 1<<30 + 64<<20 + besideBytes, Processes: 168, CPUs: 6, IOWeight: 50}); l != want {
		t.Errorf("%+v", l)
	}
}
