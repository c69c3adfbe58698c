package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/golden"
)

// text formats findings as in a golden file, without dir, a temporary directory.
func text(findings []Finding, dir string) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s: %s", f.Status, f.ID, f.Found)
		if f.Where != "" {
			fmt.Fprintf(&b, " (%s)", f.Where)
		}
		b.WriteByte('\n')
		for _, m := range f.Fix {
			fmt.Fprintf(&b, "\t%s: %s\n", m.File, m.Line)
		}
	}
	return strings.ReplaceAll(b.String(), dir, "DIR")
}

// tree writes files below a temporary directory that represents a host.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		// The mode matters (kvm), regardless of the umask.
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func doctor(t *testing.T, root, host string) string {
	t.Helper()
	offer := NewGres(machine(t, host), "n1", 8<<30)
	s, err := NewSite(context.Background(), Options{Root: root, Hostname: "n1.cluster", Offer: offer})
	if err != nil {
		t.Fatal(err)
	}
	return text(s.Doctor(), root)
}

// Checks a configuration close to those of distributions, without any of nearmetal's settings.
func TestDoctorBare(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/slurm/slurm.conf": "ClusterName=c\nSlurmctldHost=n1\nProctrackType=proctrack/linuxproc\nNodeName=n[1-4] CPUs=48 RealMemory=380000\nPartitionName=all Nodes=ALL\n",
		"dev/null":             "",
		"usr/bin/true":         "",
	})
	golden.Check(t, "testdata/doctor-bare.txt", doctor(t, root, "r740.machine"))
}

// Checks that nearmetal's own example has no failures on the host that it was generated for.
func TestDoctorExample(t *testing.T) {
	host := machine(t, "r740.machine")
	gres := NewGres(host, "n1", 8<<30)
	files := map[string]string{
		"dev/kvm": "", "dev/vfio/31": "", "dev/vfio/32": "",
		"proc/cpuinfo":     "flags\t\t: fpu vmx\n",
		"proc/4711/comm":   "slurmd\n",
		"proc/4711/limits": "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         unlimited            unlimited            bytes\n",
		"usr/lib/x86_64-linux-gnu/slurm-wlm/" + Plugin: "",
	}
	for _, f := range Example(host, gres, "n1") {
		files["etc/slurm/"+f.Name] = f.Text
	}
	got := doctor(t, tree(t, files), "r740.machine")
	golden.Check(t, "testdata/doctor-example.txt", got)
	if strings.Contains(got, "fail ") || strings.Contains(got, "warn ") {
		t.Error("our own example is not well")
	}
}

// Checks that each fault in the example is found by the row that checks it.
func TestDoctorFinds(t *testing.T) {
	host := machine(t, "r740.machine")
	for id, edit := range map[string][2]string{
		"prolog-flags": {"PrologFlags=Alloc,Contain,DeferBatch", "PrologFlags=Alloc"},
		"gres-types":   {"GresTypes=vf,region", "GresTypes=gpu"},
		"gres-node":    {"vf:mlx5:2,region:8G", "gpu:2"},
		"select":       {"select/cons_tres", "select/linear"},
		"memlock":      {"PropagateResourceLimitsExcept=MEMLOCK", ""},
		"proctrack":    {"proctrack/cgroup", "proctrack/pgid"},
		"plugin":       {"required " + Plugin, "required other.so"},
		"gres-conf":    {"/dev/vfio/[31-32]", "/dev/vfio/[31-33]"},
	} {
		files := map[string]string{"dev/vfio/31": "", "dev/vfio/32": "", "usr/lib/x86_64-linux-gnu/slurm-wlm/" + Plugin: ""}
		done := false
		for _, f := range Example(host, NewGres(host, "n1", 8<<30), "n1") {
			broken := strings.ReplaceAll(f.Text, edit[0], edit[1])
			done = done || broken != f.Text
			files["etc/slurm/"+f.Name] = broken
		}
		if got := doctor(t, tree(t, files), "r740.machine"); !done || !strings.Contains(got, "fail "+id+": ") {
			t.Errorf("%s (edited: %v) is not found:\n%s", id, done, got)
		}
	}
}

// Checks that requirements of every VM fail, and that requirements of VMs with VFs fail only where there are VFs.
func TestDoctorWeighs(t *testing.T) {
	files := func(plugin string) map[string]string {
		return map[string]string{
			"etc/slurm/slurm.conf":     "ClusterName=c\nPropagateResourceLimitsExcept=MEMLOCK\nNodeName=n1 CPUs=2\n",
			"etc/slurm/plugstack.conf": "required " + plugin + "\n",
			"dev/null":                 "",
			"proc/4711/comm":           "slurmd\n",
			"proc/4711/limits":         "Max locked memory         67108864             67108864             bytes\n",
		}
	}
	for _, c := range []struct {
		host, plugin string
		want         []string
	}{
		{"laptop.machine", Plugin, []string{"warn memlock: slurmd may lock 64 MiB; this host has no VFs yet", "fail kvm: there is no /dev/kvm here: VMs are emulated"}},
		{"r740.machine", Plugin, []string{"fail memlock: slurmd may lock 64 MiB"}},
		{"laptop.machine", Plugin + " accel=tcg", []string{"warn kvm: there is no /dev/kvm here: VMs are emulated"}},
	} {
		got := doctor(t, tree(t, files(c.plugin)), c.host)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s, %s: no %q in\n%s", c.host, c.plugin, w, got)
			}
		}
	}
}

// Checks that PMIx fences wait for all nodes with the ring algorithm, or with a tree width that builds a tree for
// every number of nodes.
func TestDoctorFences(t *testing.T) {
	for _, c := range []struct{ slurm, mpi, want string }{
		{"NodeName=n1\n", "", "ok fences: no PMIx over nodes"},
		{"NodeName=DEFAULT CPUs=2\nNodeName=n1\n", "", "ok fences: no PMIx over nodes"},
		{"NodeName=n[1-4]\n", "", "warn fences: in steps without VMs PMIx's fences wait for the ranks of their own node only\n\tDIR/etc/slurm/mpi.conf: PMIxCollFence=ring"},
		{"NodeName=n1\nNodeName=n2\nTreeWidth=16\n", "PMIxCollFence=tree\n", "warn fences: "},
		{"NodeName=n[1-4]\nTreeWidth=2\n", "", "ok fences: TreeWidth=2 (DIR/etc/slurm/slurm.conf:2)"},
		{"NodeName=n[1-4]\n", "# all\nPMIxCollFence=Ring\n", "ok fences: PMIxCollFence=Ring (DIR/etc/slurm/mpi.conf:2)"},
	} {
		files := map[string]string{"etc/slurm/slurm.conf": c.slurm, "usr/lib64/slurm/mpi_pmix.so": ""}
		if c.mpi != "" {
			files["etc/slurm/mpi.conf"] = c.mpi
		}
		if got := doctor(t, tree(t, files), "laptop.machine"); !strings.Contains(got, c.want) {
			t.Errorf("%q, %q: no %q in\n%s", c.slurm, c.mpi, c.want, got)
		}
	}
	none := tree(t, map[string]string{"etc/slurm/slurm.conf": "NodeName=n[1-4]\n", "usr/bin/true": ""})
	if got := doctor(t, none, "laptop.machine"); !strings.Contains(got, "ok fences: no PMIx over nodes") {
		t.Errorf("without PMIx's plugin:\n%s", got)
	}
}

// Checks that the doctor of another host reads nothing of this one: neither with a captured tree, which has some of a
// host's directories, nor with a description, which has no files at all.
func TestDoctorElsewhere(t *testing.T) {
	// Files of this host, and those of them that are in a capture.
	t.Setenv("SLURM_CONF", filepath.Join(tree(t, map[string]string{"slurm.conf": "ClusterName=here\nNodeName=n1\n"}), "slurm.conf"))
	included := filepath.Join(tree(t, map[string]string{"plugstack.conf": "required " + Plugin + " accel=tcg\n"}), "plugstack.conf")
	files := map[string]string{
		"etc/slurm/slurm.conf": "ClusterName=there\nGresTypes=vf,region\nPropagateResourceLimitsExcept=MEMLOCK\nPlugStackConfig=/etc/slurm/stack\n" +
			"NodeName=n[1-2] CPUs=96 Gres=vf:mlx5:2,region:96G\n",
		"etc/slurm/gres.conf": "NodeName=n1 Name=vf Type=mlx5 File=/dev/vfio/[31-32]\nName=region Count=96G\n",
		"etc/slurm/stack":     "include " + included + "\nrequired /opt/" + Plugin + "\n",
		"proc/cpuinfo":        "flags : vmx\n",
	}
	root := tree(t, files)
	files["etc/slurm/stack"] = "required /opt/" + Plugin + "\n"
	beside := tree(t, files)
	description, err := filepath.Abs("../../test/topology/r740.machine")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"tree":                 {Root: root},
		"description":          {Root: description, Conf: beside + "/etc/slurm/slurm.conf"},
		"archive of the trees": {Root: "../../test/topology/igb-sriov.tar.gz", Conf: beside + "/etc/slurm/slurm.conf"},
	} {
		o.Hostname, o.Ask, o.Offer = "n1", true, NewGres(machine(t, "r740.machine"), "n1", 0)
		s, err := NewSite(context.Background(), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := text(s.Doctor(), root)
		for _, want := range []string{
			"unknown version: no program of Slurm's could be asked", "unknown kvm: the host's /dev is not here", "ok gres-conf: vf, region",
			"unknown memlock: not propagated; the limit of that host's slurmd cannot be seen from here", "unknown fences: ",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
		if o.Root == root && !strings.Contains(got, "unknown plugin: /opt/"+Plugin) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	if _, err := NewSite(context.Background(), Options{Root: description, Hostname: "n1"}); err == nil || !strings.Contains(err.Error(), "--conf FILE") {
		t.Errorf("a description without a slurm.conf: %v", err)
	}
	if err := os.WriteFile(filepath.Join(beside, "etc/slurm/gres.conf"), []byte("Name=region Count=1G\nName=vf File=/dev/vfio/[31-33]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := NewSite(context.Background(), Options{Root: description, Conf: beside + "/etc/slurm/slurm.conf", Hostname: "n1", Offer: NewGres(machine(t, "r740.machine"), "n1", 0)})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(s.Doctor(), beside); !strings.Contains(got, "fail gres-conf: /dev/vfio/33 is not there") {
		t.Errorf("a VF that the description lacks:\n%s", got)
	}
}

func TestSiteErrors(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"write one by nearmetal slurm example":         {},
		"slurm.conf:1: \"nonsense\" is not":            {"etc/slurm/slurm.conf": "nonsense\n"},
		"plugstack.conf:2: \"needed\" is not required": {"etc/slurm/slurm.conf": "A=1\n", "etc/slurm/plugstack.conf": "# x\nneeded a.so\n"},
		"slurm.conf:1: NodeName: the bracket of":       {"etc/slurm/slurm.conf": "NodeName=n[1 CPUs=2\n"},
	} {
		_, err := NewSite(context.Background(), Options{Root: tree(t, files), Hostname: "n1"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
