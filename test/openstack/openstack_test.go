// Package openstack runs nearmetal on a cloud that cloudtest plays. The servers' agents are nearmetal, too, as in an image.
package openstack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend/openstack/tenant/cloudtest"
)

const on = "openstack:test?flavor=hpc.2&image=rocky&network=private"

// tenant is somebody with a project of a cloud, and nearmetal.
type tenant struct {
	t     *testing.T
	cloud *cloudtest.Cloud
	home  string
	nm    func(code int, want string, args ...string)
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	if testing.Short() {
		t.Skip("short: seconds")
	}
	program, err := filepath.Abs("../../build/nearmetal")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{program, program + "-vsphere"} {
		if _, err := os.Stat(p); os.Getuid() != 0 || err != nil {
			if os.Getenv("CI") != "" && os.Getuid() == 0 {
				t.Fatal(err)
			}
			t.Skip("needs root, and the programs: run make")
		}
	}
	dir, err := os.MkdirTemp("", "nm-os") // a control socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	t.Setenv("NEARMETAL_CLUSTER", "")
	c := cloudtest.New(t)
	c.Program = program
	home := t.TempDir()
	nm := func(code int, want string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = home
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Fatalf("%q: %v, want %d and %q\n%s", args, err, code, want, out)
		}
	}
	return &tenant{t, c, home, nm}
}

// nothing fails if anything is left in the cloud.
func (v *tenant) nothing() {
	v.t.Helper()
	if left := v.cloud.Left(); len(left) != 0 {
		v.t.Errorf("left: %q", left)
	}
}

// A tenant's day: up, ps, exec in VMs that know each other's names, cp, down; and run, which leaves nothing either.
func TestPrograms(t *testing.T) {
	v := newTenant(t)
	c, home, nm := v.cloud, v.home, v.nm
	if err := os.WriteFile(home+"/x", []byte("content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	machine, err := filepath.Abs("../topology/r740.machine")
	if err != nil {
		t.Fatal(err)
	}
	plan := []string{"plan", "--on", "openstack", "--root", "backend", "--host", machine, "--vms", "2", "--format", "openstack"}
	nm(0, "hw:cpu_policy=dedicated", plan...)
	nm(0, "nearmetal:region=1GiB", plan...)
	nm(0, "demo", "up", "--on", on, "--root", "backend", "--name", "demo", "--vms", "2", "--memory", "1GiB")
	nm(0, "openstack:test", "ps")
	nm(0, "vm1", "exec", "-c", "demo", "--vm", "vm0", "--", "getent", "hosts", "vm1")
	nm(0, "", "cp", home+"/x", "demo/vm1:/run/x")
	nm(0, "content", "exec", "-c", "demo", "--vm", "vm1", "--", "cat", "/run/x")
	nm(0, "vm1 has it: content", "exec", "-c", "demo", "--vm", "vm0", "--", "sh", "-c", "echo vm1 has it: $(/run/nearmetal/bin/nearmetal-rsh vm1 cat /run/x)")
	nm(0, "its agent answers", "logs", "demo")
	nm(125, "already", "up", "--on", on, "--root", "backend", "--name", "demo", "--vms", "1", "--memory", "1GiB")
	nm(0, "", "down", "demo")
	v.nothing()
	nm(0, "vm1: here", "run", "--on", on, "--root", "backend", "--vms", "2", "--memory", "1GiB", "--", "/bin/echo", "here")
	c.Quota = 4
	nm(125, "quota: 4 vCPUs are needed", "run", "--on", strings.Replace(on, "hpc.2", "m1.1", 1)+"&group=none", "--root", "backend", "--vms", "4", "--memory", "512MiB", "--", "true")
	v.nothing()
}

// The tenant's own mpirun puts its ranks into the servers, and they reach each other.
func TestMPI(t *testing.T) {
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs Debian's Open MPI")
	}
	v := newTenant(t)
	cg, err := filepath.Abs("../../build/c/kernels/nm_cg")
	if err != nil {
		t.Fatal(err)
	}
	v.nm(0, "checksum", "run", "--on", on, "--root", "backend", "--vms", "2", "--memory", "1GiB", "--",
		"mpirun.openmpi", "--allow-run-as-root", "--mca", "btl_tcp_if_include", "lo", "-n", "4", "--map-by", "node", cg, "--grid", "32")
	v.nothing()
}
