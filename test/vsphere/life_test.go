package vsphere

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// lifeFile is a cluster of two VMs.
const lifeFile = `
name: life
backend: vsphere
root: backend
vms: [{name: vm, count: 2, vcpus: 2, memory: 4GiB}]
network: {subnet: ` + vcsim.GuestSubnet + `}
vsphere: {template: ` + vcsim.Template + `, portGroup: DC0_DVPG0}
`

// guests starts a vCenter whose VMs have guests, and keeps this user's clusters in a folder of the test's.
func guests(t *testing.T) *vcsim.Server {
	t.Helper()
	if err := vcsim.GuestsWork(); err != nil {
		without(t, err)
	}
	s := vcsim.Start(t, vcsim.Options{Guests: true})
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("GOVC_GUEST_LOGIN", vcsim.GuestLogin)
	return s
}

// without skips a test for what this machine lacks; where CI runs, make test has installed it.
func without(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// inventory are the names of all VMs and networks that vCenter has.
func inventory() []string {
	var list []string
	for _, kind := range []string{"VirtualMachine", "DistributedVirtualPortgroup"} {
		for _, e := range simulator.Map.All(kind) {
			list = append(list, e.Entity().Name)
		}
	}
	slices.Sort(list)
	return list
}

// ok runs nearmetal, which must not fail.
func ok(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, errs, code := run(t, stdin, args...)
	if code != 0 {
		t.Fatalf("nearmetal %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// A cluster from up to down: the key goes by VMware Tools, the agent by ssh, programs run in the VMs, and in the end vCenter is as it
// was before.
func TestUpDown(t *testing.T) {
	s := guests(t)
	before := inventory()
	ok(t, strings.Replace(lifeFile, "portGroup: DC0_DVPG0", "switch: DVS0, vlan: 7", 1), "up", "-f", "-")
	if n := len(inventory()); n != len(before)+3 { // two VMs and their port group
		t.Errorf("%v", inventory())
	}
	if out := ok(t, "", "ps"); !strings.Contains(out, "life") || !strings.Contains(out, "vsphere") {
		t.Error(out)
	}
	if out := ok(t, "", "exec", "life/vm1", "--", "sh", "-c", "hostname; grep vm /etc/hosts; id -u"); out != "vm1\n127.7.0.1 vm0\n127.7.0.2 vm1\n0\n" {
		t.Errorf("%q", out)
	}
	if _, _, code := run(t, "", "exec", "life/vm0", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("exit status %d", code)
	}
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, []byte("there"), 0o600)
	ok(t, "", "cp", file, "life/vm0:/run/file")
	ok(t, "", "cp", "life/vm0:/run/file", file+".back")
	if text, err := os.ReadFile(file + ".back"); err != nil || string(text) != "there" {
		t.Errorf("%q, %v", text, err)
	}
	// What vCenter says of the VMs is as planned. The guests are namespaces of this machine, and have its memory.
	out, _, code := run(t, "", "verify", "life")
	differs := 0
	for _, line := range strings.Split(out, "\n") {
		if strings.HasSuffix(strings.TrimSpace(line), "differs") && !strings.Contains(line, "in the guest") {
			t.Error(line)
		}
		if strings.Contains(line, "latencySensitivity") && strings.HasSuffix(line, "ok") {
			differs++
		}
	}
	if code != 0 && code != 3 || differs != 2 {
		t.Errorf("%d, %s", code, out)
	}
	if out := ok(t, "", "logs", "life/vm0"); !strings.Contains(out, "powered on") || strings.Contains(out, "guest-pass") {
		t.Error(out)
	}
	ok(t, "", "down", "life")
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
	if left, _ := os.ReadDir(s.Guests); len(left) > 0 {
		t.Errorf("guests left: %v", left)
	}
}

// With DHCP nobody knows the addresses before the VMs run: they come from VMware Tools, and each VM gets those of all.
func TestDHCP(t *testing.T) {
	s := guests(t)
	before := inventory()
	ok(t, strings.NewReplacer("network: {subnet: "+vcsim.GuestSubnet+"}\n", "", "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, dhcp: true").Replace(lifeFile), "up", "-f", "-")
	if asked := s.Last("CustomizeVM_Task"); !strings.Contains(asked, "CustomizationDhcpIpGenerator") || strings.Contains(asked, "CustomizationFixedIp") {
		t.Error(asked)
	}
	for _, vm := range []string{"vm0", "vm1"} {
		if out := ok(t, "", "exec", "life/"+vm, "--", "grep", "vm", "/etc/hosts"); out != "127.7.0.1 vm0\n127.7.0.2 vm1\n" {
			t.Errorf("%q", out)
		}
	}
	if out := ok(t, "", "hostfile", "life", "--format", "mpich"); !strings.Contains(out, "vm0:2\nvm1:2") {
		t.Errorf("%q", out)
	}
	if _, err := exec.LookPath("mpirun"); err == nil {
		out := ok(t, "", "exec", "life/vm0", "--", "mpirun", "--oversubscribe", "-np", "4", "hostname")
		if list := strings.Fields(out); len(list) != 4 || !slices.Contains(list, "vm0") || !slices.Contains(list, "vm1") {
			t.Errorf("%q", out)
		}
	}
	if out := ok(t, "", "logs", "life/vm1"); !strings.Contains(out, "by DHCP at 127.7.0.2/24") {
		t.Error(out)
	}
	ok(t, "", "down", "life")
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
}

// Without a login of the guests, the user's own ssh gets in: with the user's key, as a user of the template's who becomes root by sudo. It
// knows the clones by the template's host key, under the name nearmetal-TEMPLATE.
func TestOwnSSH(t *testing.T) {
	s := guests(t)
	if _, err := exec.LookPath("sudo"); err != nil {
		without(t, err)
	}
	t.Setenv("GOVC_GUEST_LOGIN", "")
	key, host := s.GiveTemplate(t)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	// The user's ssh configuration, which is a file of the home: here it is another file.
	dir := t.TempDir()
	known := filepath.Join(dir, "known_hosts")
	for name, text := range map[string]string{
		"config": "IdentityFile " + key + "\nUserKnownHostsFile " + known + "\n",
		"ssh":    "#!/bin/sh\nexec " + ssh + " -F " + dir + "/config \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	before := inventory()
	file := fileOf(t, strings.NewReplacer("count: 2", "count: 1", "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, user: "+vcsim.TemplateUser).Replace(lifeFile))
	line := "nearmetal-" + strings.ToLower(vcsim.Template) + " " + host + "\n"
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	// The agent is root's: only root sets the names of all VMs over the disk's own.
	if out := ok(t, "", "run", "-f", file, "--", "sh", "-c", "stat -c %U /run/nearmetal; grep vm /etc/hosts"); out != "root\n127.7.0.1 vm0\n" {
		t.Errorf("%q", out)
	}
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
}

// MPI is launched as on KVM: mpirun in the first VM reaches the others by their addresses.
func TestMPI(t *testing.T) {
	guests(t)
	if _, err := exec.LookPath("mpirun"); err != nil {
		without(t, err)
	}
	out := ok(t, "", "run", "-f", fileOf(t, lifeFile), "--", "mpirun", "--oversubscribe", "-np", "4", "hostname")
	list := strings.Fields(out)
	slices.Sort(list)
	if strings.Join(list, " ") != "vm0 vm0 vm1 vm1" {
		t.Errorf("%q", out)
	}
}

// fileOf writes a cluster file.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
