package numa

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/slurm/examples"
	"nearmetal/test/outer"
	"nearmetal/test/slurm/bed"
)

// onOuter is set where this program runs on the outer host.
const onOuter = "NEARMETAL_ON_OUTER"

// slurm runs TestSlurm, of this very program, on the outer host.
func (h *host) slurm() {
	h.T.Helper()
	if what := bed.Missing(); what != "" {
		outer.Missing(h.T, what+" (scripts/install.sh slurm)")
	}
	exe, err := os.Executable()
	if err != nil {
		h.T.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		h.T.Fatal(err)
	}
	// What slurmd needs of a host: an address beside the loopback's (AI_ADDRCONFIG), its name's, and cgroups. The card's
	// address is also what the VF in the VM pings.
	h.Sh(`set -e; ip addr add 10.78.1.1/16 dev eth0; echo 127.0.0.1 $(hostname) >>/etc/hosts; mount -t tmpfs none /sys/fs/cgroup
		for c in freezer memory cpuset devices cpuacct; do mkdir /sys/fs/cgroup/$c; mount -t cgroup -o $c none /sys/fs/cgroup/$c; done`)
	out, err := h.Try(fmt.Sprintf("cd %s && %s=1 %s -test.run '^TestSlurm$' -test.v", dir, onOuter, exe), vmBound)
	h.T.Logf("on the outer host:\n%s", out)
	if err != nil {
		h.T.Errorf("Slurm with a VF: %v", err)
	}
	h.Step("Slurm has leased a VF")
}

// A real Slurm, on the outer host, has the card's VFs as GRES: a step's VM has one, uses it, and it comes back.
func TestSlurm(t *testing.T) {
	if os.Getenv(onOuter) == "" {
		t.Skip("part of TestPagesAndSlurm, on its outer host")
	}
	top, err := bed.Own("nmn")
	if err != nil {
		t.Fatal(err)
	}
	defer bed.Remove(top)
	bin, state := filepath.Join(top, "bin"), filepath.Join(top, "s")
	if err := install(top, bin); err != nil {
		t.Fatal(err)
	}
	var groups, files []string
	for _, vf := range []string{"0000:41:10.0", "0000:41:10.2"} {
		if out, err := exec.Command(bin+"/nearmetal", "device", "bind", vf).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		group, err := os.Readlink("/sys/bus/pci/devices/" + vf + "/iommu_group")
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, filepath.Base(group))
		files = append(files, "/dev/vfio/"+filepath.Base(group))
	}
	gres := ""
	for _, f := range files {
		gres += fmt.Sprintf("Name=vf Type=igb File=%s\n", f)
	}
	b, err := bed.Start(bed.Options{
		Nodes: 1, CPUs: 8, MemoryMB: 4000, Plugstack: bed.Plugstack(bin, state, "boot_timeout=400"), Gres: "vf:igb:2", Extra: "JobSubmitPlugins=lua\n",
		Files: map[string]string{"job_submit.lua": examples.JobSubmit, "gres.conf": gres,
			"cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	t.Logf("Slurm with the VFs of IOMMU groups %v", groups)
	cmd := b.Command("srun", "-n1", "--mem=1000", "--vm", "--vm-vf=igb:1", "sh", "-c", "cat /run/nearmetal/devices; busybox ping -c 2 -W 60 10.78.1.1")
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	t.Logf("srun: %s", out)
	if err != nil || !strings.Contains(string(out), "igbvf") || !strings.Contains(string(out), " 0% packet loss") {
		t.Errorf("%v\n%s", err, b.Logs())
	}
	if err := b.AwaitIdle(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob("/var/lib/nearmetal/*.open"); len(left) > 0 {
		t.Errorf("left in the journals: %v", left)
	}
}

// install puts the programs and the plugin where Slurm finds them.
func install(top, bin string) error {
	if err := errors.Join(os.Chmod(top, 0o711), os.MkdirAll(filepath.Join(bin, "c/slurm"), 0o755), os.MkdirAll(filepath.Join(bin, "c/fabric"), 0o755)); err != nil {
		return err
	}
	for _, f := range []string{"nearmetal", "nearmetal-task", "c/slurm/spank_nearmetal.so", "c/fabric/libivshmem-fi.so"} {
		text, err := os.ReadFile(filepath.Join("../../build", f))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, f), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return os.Symlink("nearmetal", filepath.Join(bin, "nearmetal-rsh"))
}
