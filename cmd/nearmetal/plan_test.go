package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// command runs one command by itself and returns what it printed.
func command(t *testing.T, make func() *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := make()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

const aMachine = "../../test/topology/r740.machine"

func TestTopologyCommand(t *testing.T) {
	dir := t.TempDir()
	svg := filepath.Join(dir, "t.svg")
	if out, err := command(t, newTopologyCommand, "--root", aMachine, "--svg", svg); err != nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
	if b, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(b, []byte("<svg ")) {
		t.Errorf("%v, %.40q", err, b)
	}
	if out, err := command(t, newTopologyCommand, "--root", aMachine, "--json"); err != nil || !strings.Contains(out, `"name": "r740"`) {
		t.Errorf("%.100q, %v", out, err)
	}
	if out, err := command(t, newTopologyCommand, "--root", aMachine); err != nil || !strings.Contains(out, "48 cores, 96 CPUs") {
		t.Errorf("%.100q, %v", out, err)
	}
	if _, err := command(t, newTopologyCommand, "--root", "a", "--hwloc", "b"); err == nil || !strings.Contains(err.Error(), "one host") {
		t.Error(err)
	}
	if _, err := command(t, newTopologyCommand, "--root", filepath.Join(dir, "none")); err == nil {
		t.Error("read a folder that is not there")
	}
	// The same topology of this host is gathered twice.
	one, two := filepath.Join(dir, "one.tar.gz"), filepath.Join(dir, "two.tar.gz")
	for _, f := range []string{one, two} {
		if out, err := command(t, newTopologyCommand, "gather", f, "--name", "here"); err != nil {
			t.Fatalf("%q, %v", out, err)
		}
	}
	out, err := command(t, newTopologyCommand, "--root", one)
	if err != nil || !strings.HasPrefix(out, "here") {
		t.Errorf("%.100q, %v", out, err)
	}
	if _, err := command(t, newTopologyCommand, "gather", filepath.Join(dir, "no", "x.tar.gz")); err == nil {
		t.Error("wrote into a folder that is not there")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestPlanCommand(t *testing.T) {
	dir := t.TempDir()
	base := []string{"--vms", "1", "--vcpus", "40", "--memory", "96GiB", "--host", aMachine}
	run := func(more ...string) string {
		out, err := command(t, newPlanCommand, append(base[:len(base):len(base)], more...)...)
		if err != nil {
			t.Fatalf("%q: %v", more, err)
		}
		return out
	}
	if out := run(); !strings.Contains(out, "vm0 on r740: 40 vCPUs (2 sockets x 20 cores), 96 GiB") || strings.Contains(out, "spans nodes") {
		t.Error(out)
	}
	if out := run("--explain"); !strings.Contains(out, "spans nodes 0-1: 40 vCPUs > 24 free cores of any node") {
		t.Error(out)
	}
	if out := run("--json"); out != run("--format", "json") || !strings.Contains(out, `"vcpus": 40`) {
		t.Error(out)
	}
	if out := run("--memory", "96G"); !strings.Contains(out, "96 GiB") {
		t.Error(out)
	}
	svg := filepath.Join(dir, "p.svg")
	file := filepath.Join(dir, "plan.yaml")
	if err := os.WriteFile(file, []byte(run("--format", "yaml", "--svg", svg)), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(svg); err != nil || !bytes.Contains(b, []byte("vm0: 40 vCPUs")) {
		t.Errorf("%v, %d bytes", err, len(b))
	}
	out, err := command(t, newPlanCommand, "--move", file, "--to", "../../test/topology/epyc-nps4.machine")
	if err != nil || !strings.Contains(out, "move to epyc-nps4") || !strings.Contains(out, "vm0: mean distance to memory") {
		t.Errorf("%q, %v", out, err)
	}
	// Two hosts with the same name are distinguished; a host is required; formats are checked.
	if out := run("--host", aMachine, "--format", "json"); !strings.Contains(out, `"host": "r740"`) {
		t.Error(out)
	}
	for _, c := range [][]string{{"--format", "xml"}, {"--json", "--format", "yaml"}, {"--move", file}, {"--host", filepath.Join(dir, "none")}, {"--vms", "1", "--vcpus", "4000", "--strict", "--host", aMachine}} {
		if out, err := command(t, newPlanCommand, c...); err == nil {
			t.Errorf("%q: no error, %q", c, out)
		}
	}
}

// The last line of a plan's text states how the VMs run.
func TestPlanShort(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--vms", "2"}, "vCPUs pinned; memory in 1 GiB pages (--explain says why)"},
		{[]string{"--vms", "2", "--explain"}, "vCPUs pinned; memory in 1 GiB pages"},
		{[]string{"--vms", "2", "--accel", "tcg"}, "vCPUs not pinned; memory in 1 GiB pages; emulated (TCG): timings are not meaningful (--explain says why)"},
		{[]string{"--vms", "2", "--vcpus", "200"}, "vCPUs not pinned; memory in ordinary pages (--explain says why)"},
	} {
		out, err := command(t, newPlanCommand, append([]string{"--host", aMachine}, c.args...)...)
		if lines := strings.Split(out, "\n"); err != nil || lines[max(len(lines)-2, 0)] != c.want {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
	}
}

// The output with QEMU's command lines states what they omit.
func TestPlanQEMU(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip(err)
	}
	out, err := command(t, newPlanCommand, "--host", aMachine, "--vms", "2", "--format", "qemu")
	if err != nil {
		t.Fatal(err)
	}
	head, commands, ok := strings.Cut(out, "# vm0 on ")
	if !ok || strings.Count(commands, "qemu-system-x86_64") != 2 {
		t.Fatalf("%s", out)
	}
	for _, part := range []string{"-fsdev", "virtio-9p-pci", "-netdev", "virtio-net-pci"} {
		if strings.Contains(head, part) == strings.Contains(commands, part) {
			t.Errorf("%s: neither in the command lines nor named above them, or both:\n%s", part, out)
		}
	}
	if strings.Contains(commands, "/proc/self/fd/") && !strings.Contains(head, "/proc/self/fd/") {
		t.Errorf("descriptors are not explained:\n%s", head)
	}
}

// Domains are written to standard output, or each to a file, and nothing is overwritten.
func TestPlanLibvirt(t *testing.T) {
	args := []string{"--host", aMachine, "--vms", "2", "--format", "libvirt"}
	out, err := command(t, newPlanCommand, args...)
	if err != nil || strings.Count(out, "<domain type=\"kvm\">") != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "domains")
	args = append(args, "--dir", dir)
	if out, err := command(t, newPlanCommand, args...); err != nil || out != "" {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(dir + "/*.xml")
	if err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
	os.Remove(files[0])
	if _, err := command(t, newPlanCommand, args...); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(files[0]); err == nil {
		t.Error("half of the files were written")
	}
	if _, err := command(t, newPlanCommand, "--host", "../../test/topology/grace.machine", "--vms", "2", "--format", "libvirt"); err == nil || !strings.Contains(err.Error(), "x86-64") {
		t.Errorf("%v", err)
	}
}
