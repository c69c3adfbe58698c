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

// What a plan takes is compared with the ordinary memory that is free: huge pages are not of it.
func TestShortOf(t *testing.T) {
	const gib = 1 << 30
	vm := func(pages ...uint64) plan.VM {
		v := plan.VM{MemoryBytes: 4 * gib}
		for _, p := range pages {
			v.Nodes = append(v.Nodes, plan.Node{MemoryBytes: 4 * gib / uint64(len(pages)), PageBytes: p})
		}
		return v
	}
	shm, huge := &plan.Region{SizeBytes: gib, Backing: "shm"}, &plan.Region{SizeBytes: gib, Backing: "hugetlb"}
	for i, c := range []struct {
		vms    []plan.VM
		region *plan.Region
		have   uint64
		want   string
	}{
		{[]plan.VM{vm(), vm()}, nil, 8 * gib, ""},
		{[]plan.VM{vm(), vm()}, nil, 7 * gib, "no memory for the VMs: 2 VMs need 8GiB together and 7GiB is available; --memory 3584MiB would fit"},
		{[]plan.VM{vm(), vm()}, shm, 8 * gib, "2 VMs need 9GiB together"},
		{[]plan.VM{vm(), vm()}, huge, 8 * gib, ""},
		{[]plan.VM{vm(2<<20, 2<<20), vm(gib)}, huge, 1 << 20, ""},
		{[]plan.VM{vm(2 << 20), vm(0, 0)}, nil, gib, "2 VMs need 4GiB together"},
	} {
		err := shortOf(&plan.Plan{VMs: c.vms, Region: c.region}, c.have)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
}
