package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/slurm/examples"
	"nearmetal/test/hosttree"
	"nearmetal/test/slurm/bed"
)

// A host with two VFs, bound to vfio-pci: the captured one of the devices' own tests. The files of
// their groups are device files, as Slurm wants them; no driver is behind their numbers.
func hostWithVFs(t *testing.T) (root string) {
	t.Helper()
	root = scratch(t)
	keep := regexp.MustCompile(`^(\./)?(sys/bus/pci|sys/kernel/iommu_groups|sys/devices/pci0000)`)
	if err := hosttree.Unpack(root, "../../internal/host/device/testdata/s2.tar.gz", keep.MatchString); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "dev/vfio"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, group := range vfGroups {
		if err := unix.Mknod(groupFile(root, group), unix.S_IFCHR|0o600, int(unix.Mkdev(511, uint32(group)))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The IOMMU groups of the captured host's VFs.
var vfGroups = []int{8, 9}

func groupFile(root string, group int) string { return fmt.Sprintf("%s/dev/vfio/%d", root, group) }

// owners are those of the groups' files, by their numbers.
func owners(t *testing.T, root string) (list []int) {
	t.Helper()
	for _, group := range vfGroups {
		st, err := os.Stat(groupFile(root, group))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, int(st.Sys().(*syscall.Stat_t).Uid))
	}
	return list
}

// VFs as GRES: a job's user has the files of its own VFs for as long as it runs, and only those; more
// than there are is refused; a job that is killed, and a reboot, leave none. (VMs that have VFs are
// tested where there are some: test/sriov.)
func TestVFs(t *testing.T) {
	root := hostWithVFs(t)
	b, err := bed.Start(bed.Options{
		Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugstack("sysroot=" + root), Gres: "vf:igb:2", Extra: "JobSubmitPlugins=lua\n",
		Files: map[string]string{
			"job_submit.lua": examples.JobSubmit,
			"gres.conf":      "Name=vf Type=igb File=" + root + "/dev/vfio/[8-9]\n",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	one, two := newAccount(t, 1), newAccount(t, 2)
	run := func(a *account, name string, args ...string) result {
		t.Helper()
		cmd := a.command(t, name, args...)
		cmd.Env = b.Environ(a.name, a.home)
		return finish(t, cmd, "")
	}
	is := func(what string, want ...int) {
		t.Helper()
		await(t, what, func() bool { return fmt.Sprint(owners(t, root)) == fmt.Sprint(want) })
	}
	left := func() {
		t.Helper()
		is("the end of the jobs", 0, 0)
		if files, _ := filepath.Glob(root + "/var/lib/nearmetal/*.done"); len(files) > 0 {
			t.Errorf("left in the journals: %v", files)
		}
	}
	// hold starts a job with a VF; the VMs would boot with its first step.
	hold := func(a *account) string {
		t.Helper()
		r := run(a, "sbatch", "--parsable", "-n1", "--mem=500", "--vm-keep=step", "--vm", "--vm-vf=igb:1", "-o", a.home+"/vf",
			"--wrap", "exec sleep 600")
		if r.code != 0 {
			t.Fatalf("%+v\n%s", r, b.Logs())
		}
		return strings.TrimSpace(r.out)
	}
	for _, more := range []string{"igb:3", "mlx5:1"} {
		if r := run(one, "srun", "--vm", "--vm-vf="+more, "true"); r.code == 0 || !strings.Contains(r.err, "Requested node configuration is not available") {
			t.Errorf("--vm-vf=%s: %+v", more, r)
		}
	}
	first := hold(one)
	is("the first job's VF", one.uid, 0)
	second := hold(two)
	is("the second job's VF", one.uid, two.uid)
	for i, a := range []*account{two, one} {
		if f := groupFile(root, vfGroups[i]); finish(t, a.command(t, "/usr/bin/test", "-r", f), "").code == 0 {
			t.Errorf("%s may open %s", a.name, f)
		}
	}
	b.Command("scancel", first).Run()
	is("the end of the first job", 0, two.uid)

	// Everything of the job is killed at once, its slurmstepd first.
	for _, p := range stepdsOf(b, second) {
		syscall.Kill(p, syscall.SIGKILL)
	}
	b.Command("scancel", second).Run()
	left()

	// A reboot: all state of /run has gone.
	third := hold(one)
	is("the third job's VF", one.uid, 0)
	b.StopNode("n1")
	for _, p := range stepdsOf(b, third) {
		syscall.Kill(p, syscall.SIGKILL)
	}
	removeFolders(third + ".n1")
	if err := b.StartNode("n1"); err != nil {
		t.Fatal(err)
	}
	left()
	b.Command("scancel", third).Run()

	// A host that cannot hand a VF over says so, and gets no further job.
	if err := os.WriteFile(b.Path("gres.conf"), []byte("Name=vf Type=igb File=/dev/vfio/[77-78]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := run(one, "srun", "--vm", "--vm-vf=igb:1", "-n1", "true")
	if want := "nearmetal: n1: gres.conf: /dev/vfio/77: no device of this host is in IOMMU group 77"; r.code == 0 || !strings.Contains(r.err, want) {
		t.Errorf("%+v\n%s", r, b.Logs())
	}
	if out, _ := b.Command("sinfo", "-R", "-h", "-o", "%N %E").Output(); !strings.HasPrefix(string(out), "n1 nearmetal: ") {
		t.Errorf("drained: %q", out)
	}
}
