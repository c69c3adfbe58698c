package limits

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/host/isolate"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
)

// Checks that the next command ends the processes in a VM's cgroup that a killed owner left, and removes the cgroup.
func TestGroupJournaled(t *testing.T) {
	parent, missing, err := isolate.GroupParent()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	undo := func() (words []string, err error) {
		j, err := journal.Open(path)
		if err != nil {
			return nil, err
		}
		defer j.Close()
		list, err := j.UndoAll()
		for _, c := range list {
			words = append(words, c.String())
		}
		return words, err
	}
	g, err := Groups{parent, missing}.Make("limits-test", &plan.VM{Name: "vm0", VCPUs: 1, MemoryBytes: 64 << 20}, nil, j)
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
	words, err := undo()
	if err != nil || len(words) != 1 || !strings.Contains(words[0], "cgroup "+parent) {
		t.Errorf("%q, %v", words, err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a process of the group: %v", err)
	}
	if words, err := undo(); err != nil || len(words) > 0 {
		t.Errorf("again: %q, %v", words, err)
	}
}

// Checks that a journal can remove only cgroups of nearmetal.
func TestValidGroup(t *testing.T) {
	for path, good := range map[string]bool{
		"/sys/fs/cgroup/user.slice/nearmetal-1000-a-vm0": true,
		"/sys/fs/cgroup/system.slice":                    false,
		"/sys/fs/cgroup/nearmetal-1/..":                  false,
		"nearmetal-1":                                    false,
		"":                                               false,
	} {
		if err := validGroup(journal.Change{Kind: kind, Args: map[string]string{"path": path}}); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestLimitsOf(t *testing.T) {
	l := limitsOf(&plan.VM{VCPUs: 4, MemoryBytes: 1 << 30}, &plan.Region{SizeBytes: 64 << 20})
	if want := (isolate.Limits{MemoryBytes: 1<<30 + 64<<20 + besideBytes, Processes: 168, CPUs: 6, IOWeight: 50}); l != want {
		t.Errorf("%+v", l)
	}
}
