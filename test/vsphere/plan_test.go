// Package vsphere tests nearmetal and nearmetal-vsphere as programs, against a simulated vCenter.
package vsphere

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/backend/vsphere/vcsim"
	"nearmetal/internal/jsonform"
)

var update = flag.Bool("update", false, "write the golden files")

// run runs nearmetal, in whose place nearmetal-vsphere is to come.
func run(t *testing.T, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	program, err := filepath.Abs("../../build/nearmetal")
	if err == nil {
		_, err = os.Stat(program + "-vsphere")
	}
	if err != nil {
		t.Fatal("no build/nearmetal-vsphere: run make go first")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }, 10*time.Second // it says what it waits for
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("nearmetal %v: %v: %s%s", args, err, &o, &e)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

const file = `
backend: vsphere
root: backend
vms:
  - name: mpi
    count: 2
    vcpus: 10
    memory: 40GiB
    devices: [{type: vf, pf: vmnic4}]
`

// unpacked is the text of an archive, without its compression.
func unpacked(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A capture of a host in vCenter serves plans elsewhere: without vCenter, and from standard input.
func TestCaptureAndPlan(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	dir := t.TempDir()
	capture := filepath.Join(dir, "esx.vsphere.tar.gz")
	live, errs, code := run(t, "", "topology", "--vsphere", s.Host)
	if code != 0 || !strings.HasPrefix(live, s.Host+": Intel") {
		t.Fatalf("%d, %s%s", code, live, errs)
	}
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, "--anonymous", "--name", "esx", capture); code != 0 {
		t.Fatal(errs)
	}
	whole := filepath.Join(dir, "whole.tar.gz")
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, whole); code != 0 {
		t.Fatal(errs)
	}
	for _, path := range []string{capture, whole} {
		if text := unpacked(t, path); !bytes.Contains(text, []byte("numaInfo")) || bytes.Contains(text, []byte(vcsim.Password)) {
			t.Errorf("%s: the password is in it, or no host is", path)
		}
	}
	t.Setenv("GOVC_URL", "127.0.0.1:1") // nobody is asked any more
	seen, errs, code := run(t, "", "topology", "--root", capture)
	if code != 0 || seen != strings.Replace(live, s.Host, "esx", 1) {
		t.Errorf("%d, %s%s", code, seen, errs)
	}
	for _, args := range [][]string{{"topology", "--root", capture}, {"plan", "-f", "-", "--host", capture}} { // pictures, as of any host
		picture := filepath.Join(dir, args[0]+".svg")
		if _, errs, code := run(t, file, append(args, "--svg", picture)...); code != 0 {
			t.Error(errs)
		}
		text, _ := os.ReadFile(picture)
		for _, want := range []string{"<svg", "vmnic4", "node 3"} {
			if !strings.Contains(strings.ToLower(string(text)), want) {
				t.Errorf("%s: no %q in the picture", args[0], want)
			}
		}
	}
	plan, errs, code := run(t, file, "plan", "-f", "-", "--host", capture, "--explain")
	if code != 0 {
		t.Fatal(errs)
	}
	path := "testdata/plan.txt"
	if *update {
		os.WriteFile(path, []byte(plan), 0o644)
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != plan {
		t.Errorf("%v: the plan is not as it was (-update writes it):\n%s", err, plan)
	}
	text, errs, code := run(t, file, "plan", "-f", "-", "--host", capture, "--format", "vsphere")
	var r struct {
		VMs []struct {
			NumCPUs     int               `json:"numCPUs"`
			Latency     string            `json:"latencySensitivity"`
			ExtraConfig map[string]string `json:"extraConfig"`
		} `json:"vms"`
		Lost []string `json:"lost"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != 0 || len(r.VMs) != 2 || r.VMs[0].NumCPUs != 10 || r.VMs[1].ExtraConfig["numa.nodeAffinity"] == "" || len(r.Lost) == 0 {
		t.Errorf("%v, %d, %s%s", err, code, text, errs)
	}
	// It is as the schema promises.
	schema, err := os.ReadFile("../../docs/reference/json/plan-format-vsphere.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var form jsonform.Schema
	var v any
	if err := errors.Join(json.Unmarshal(schema, &form), json.Unmarshal([]byte(text), &v)); err != nil {
		t.Fatal(err)
	}
	if err := form.Check(v); err != nil {
		t.Error(err)
	}
}

// One cluster file for KVM and vSphere. On each side the plan is the same, and says what of the file is lost there; what a side cannot
// have at all is one line.
func TestBothSides(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	capture := filepath.Join(t.TempDir(), "esx.vsphere.tar.gz")
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, capture); code != 0 {
		t.Fatal(errs)
	}
	both := strings.Replace(file, "backend: vsphere\n", "", 1) + "vsphere: {template: rocky9, portGroup: mpi-pg}\n"
	dynamic := strings.NewReplacer("count: 2", "count: 1", "{type: vf, pf: vmnic4}", "{type: pci, address: '0000:3b:00.1', dynamic: true}").Replace(both)
	warnings := func(text, on string) (plan, said string) {
		t.Helper()
		out, errs, code := run(t, text, "plan", "-f", "-", "--on", on, "--host", capture)
		if code != 0 {
			t.Fatalf("%s: %s", on, errs)
		}
		for _, line := range strings.Split(out, "\n") {
			if strings.HasPrefix(line, "warning: ") {
				said += line + "\n"
			}
		}
		plan, _, _ = strings.Cut(out, "\nregion: ")
		plan, _, _ = strings.Cut(plan, "\nwarning: ")
		return strings.TrimSpace(plan), said
	}
	esxi, lost := warnings(both, "vsphere")
	for _, want := range []string{"no CPUs are kept for the VM's other threads", "which is ESXi's choice", "cannot be moved"} {
		if !strings.Contains(lost, want) {
			t.Errorf("vSphere: %s\nwant %s", lost, want)
		}
	}
	for _, on := range []string{"qemu", "libvirt"} {
		kvm, lost := warnings(both, on)
		if kvm != esxi {
			t.Errorf("%s plans otherwise:\n%s\nand vSphere\n%s", on, kvm, esxi)
		}
		for _, want := range []string{"not used by backend " + on + ": vsphere: {template, portGroup}", "write root: host"} {
			if !strings.Contains(lost, want) {
				t.Errorf("%s: %s\nwant %s", on, lost, want)
			}
		}
		if _, lost := warnings(dynamic, on); !strings.Contains(lost, "to start mpi, leave dynamic out") {
			t.Errorf("%s: %s", on, lost)
		}
	}
	if _, lost := warnings(dynamic, "vsphere"); !strings.Contains(lost, "is vCenter's choice") {
		t.Error(lost)
	}
	// What only vSphere has is in its plan, and not used on KVM.
	own := strings.Replace(both, "portGroup: mpi-pg", "portGroup: mpi-pg, dhcp: true, secureBoot: true, vgpu: "+vcsim.VGPU+", pvrdma: rdma-pg", 1)
	if _, lost := warnings(own, "vsphere"); !strings.Contains(lost, "its vGPU is of") || !strings.Contains(lost, "PVRDMA card sends by") {
		t.Error(lost)
	}
	if out, errs, code := run(t, own, "plan", "-f", "-", "--on", "vsphere", "--host", capture); code != 0 || !strings.Contains(out, "efiSecureBootEnabled           true") || !strings.Contains(out, "vgpu "+vcsim.VGPU) || !strings.Contains(out, "pvrdma rdma-pg") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	for _, on := range []string{"qemu", "libvirt"} {
		if _, lost := warnings(own, on); !strings.Contains(lost, "vsphere: {template, portGroup, dhcp, secureBoot, vgpu, pvrdma}") {
			t.Errorf("%s: %s", on, lost)
		}
	}
	// A region is KVM's: there it is in the plan, on vSphere a line.
	region := both + "region: {size: 64MiB}\n"
	if out, errs, code := run(t, region, "plan", "-f", "-", "--on", "qemu", "--host", capture); code != 0 || !strings.Contains(out, "region: 64 MiB") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if _, errs, code := run(t, region, "plan", "-f", "-", "--on", "vsphere", "--host", capture); code == 0 || !strings.Contains(errs, "write region: 0") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d, %s", code, errs)
	}
}

// What cannot be on ESXi is one line, before anything is asked.
func TestRefused(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	capture := filepath.Join(t.TempDir(), "esx.vsphere.tar.gz")
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, capture); code != 0 {
		t.Fatal(errs)
	}
	for _, x := range []struct {
		file string
		want string
	}{
		{file + "region: {size: 64MiB}\n", "write region: 0"},
		{file + "placement: {pin: always}\n", "each vCPU has a core of its own"},
		{strings.Replace(file, "root: backend", "root: host", 1), "write root: backend"},
		{strings.Replace(file, "vcpus: 10", "vcpus: 24", 1), "ESXi needs 4 for itself"},
		{strings.Replace(file, "vmnic4", "vmnic0", 1), "vmnic0"},
		{strings.NewReplacer("count: 2", "count: 1", "{type: vf, pf: vmnic4}", "{type: pci, address: '0000:3b:00.0'}").Replace(file), "does not pass it through"},
		{file + "kernel: /boot/vmlinuz\n", "kernel"},
	} {
		_, errs, code := run(t, x.file, "plan", "-f", "-", "--host", capture)
		if code == 0 || !strings.Contains(errs, x.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%d, %q\nwant %s", code, errs, x.want)
		}
	}
	if _, errs, code := run(t, file, "plan", "-f", "-", "--host", filepath.Join(t.TempDir(), "none.vsphere.tar.gz")); code != 125 || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d, %q", code, errs)
	}
	bad := filepath.Join(t.TempDir(), "bad.vsphere.tar.gz")
	os.WriteFile(bad, []byte("no archive"), 0o600)
	if _, errs, code := run(t, "", "topology", "--root", bad); code != 125 || !strings.Contains(errs, "bad.vsphere.tar.gz") {
		t.Errorf("%d, %q", code, errs)
	}
	if _, errs, code := run(t, file, "up", "-f", "-"); code != 125 || !strings.Contains(errs, "write vsphere: {template: NAME}") {
		t.Errorf("%d, %q", code, errs)
	}
}

// A cluster file of the vHPC toolkit becomes one of ours, which plans take.
func TestImport(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	capture := filepath.Join(t.TempDir(), "esx.vsphere.tar.gz")
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, capture); code != 0 {
		t.Fatal(errs)
	}
	yaml, errs, code := run(t, "[B]\ncpu: 10\nmemory: 20\nguest_password: "+vcsim.Password+"\n[_VMS_]\nmpi{1:2}: B pf: 0000:3B:00.0 latency: high\n", "spec", "import", "--vhpc", "-")
	if code != 0 || strings.Contains(yaml+errs, vcsim.Password) || !strings.Contains(errs, "guest_password") {
		t.Fatalf("%d, %s%s", code, yaml, errs)
	}
	if plan, errs, code := run(t, yaml, "plan", "-f", "-", "--host", capture); code != 0 || !strings.Contains(plan, "sriov 0000:3b:00.0") {
		t.Errorf("%d, %s%s", code, plan, errs)
	}
}

// A cluster file of the toolkit's runs as it was imported: its template, hosts, network and addresses by DHCP.
func TestImportRun(t *testing.T) {
	guests(t)
	before := inventory()
	yaml, errs, code := run(t, `[BASE]
template: `+vcsim.Template+`
datacenter: DC0
cluster: DC0_C0
datastore: LocalDS_0
cpu: 2
memory: 3.5
port_group: DC0_DVPG0
is_dhcp: True
domain: example.com
secure_boot: no
power: on
[_VMS_]
mpi{0:1}: BASE host: DC0_C0_H{0:1}
`, "spec", "import", "--vhpc", "-")
	if code != 0 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "the plan chooses which VM is on which") {
		t.Fatalf("%d, %s", code, errs)
	}
	if out := ok(t, "", "run", "-f", fileOf(t, yaml), "--", "grep", "-c", "mpi", "/etc/hosts"); out != "mpi0: 2\nmpi1: 2\n" && out != "mpi1: 2\nmpi0: 2\n" {
		t.Errorf("%q", out)
	}
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
}

// Settings of a host are shown, changed, read back, and undone by the command that each change says.
func TestHostSettings(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	list := func() string {
		t.Helper()
		out, errs, code := run(t, "", "vsphere", "passthru", s.Host)
		if code != 0 || errs != "" {
			t.Fatal(errs)
		}
		power, errs, code := run(t, "", "vsphere", "power", s.Host)
		if code != 0 {
			t.Fatal(errs)
		}
		return out + power
	}
	first := list()
	for _, args := range [][]string{
		{"vsphere", "passthru", s.Host, "0000:3b:00.1", "af:00.1", "--off"},
		{"vsphere", "sriov", s.Host, "vmnic4", "--vfs", "2"},
		{"vsphere", "sriov", s.Host, "vmnic4", "vmnic6", "--vfs", "8"},
		{"vsphere", "power", s.Host, "--policy", "balanced"},
	} {
		before := list()
		_, errs, code := run(t, "", args...)
		if code != 0 || !strings.HasPrefix(errs, "undone by: nearmetal ") || list() == before {
			t.Fatalf("%v: %d, %s", args, code, errs)
		}
		if args[len(args)-1] == "2" { // its undoing is that of two cards with other numbers
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(errs), "\n") {
			_, undo, _ := strings.Cut(line, "nearmetal ")
			if _, errs, code := run(t, "", strings.Fields(undo)...); code != 0 {
				t.Fatalf("%s: %s", undo, errs)
			}
		}
		if after := list(); after != before {
			t.Errorf("%v is not undone:\n%s\nwas\n%s", args, after, before)
		}
	}
	if _, errs, code := run(t, "", "vsphere", "sriov", s.Host, "vmnic4", "--vfs", "4"); code != 0 || list() != first {
		t.Errorf("%s%s\nwas\n%s", errs, list(), first)
	}
	for _, args := range [][]string{{"passthru", s.Host, "vmnic4"}, {"passthru", s.Host, "--on"}, {"sriov", s.Host, "--vfs", "2"}, {"sriov", s.Host, "vmnic4", "--vfs", "-3"}, {"power"}} {
		if _, errs, code := run(t, "", append([]string{"vsphere"}, args...)...); code != 2 {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
	for _, kind := range []string{"svs", "dvs"} {
		args := []string{"vsphere", kind, s.Host, "--name", "nm-sw", "--port-group", "nm-pg", "--pnic", "vmnic4"}
		for i, want := range []string{"made", "there already", "removed", "not there"} {
			if i == 2 {
				args = append(args, "--remove")
			}
			if out, errs, code := run(t, "", args...); code != 0 || !strings.HasSuffix(out, ": "+want+"\n") {
				t.Errorf("%s: %d, %s%s\nwant %s", kind, code, out, errs, want)
			}
		}
		if _, errs, code := run(t, "", "vsphere", kind, s.Host, "--name", "x"); code != 2 {
			t.Errorf("%d, %s", code, errs)
		}
	}
	if out, errs, code := run(t, "", "vsphere", "sriov", s.Host, "--json"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}

// A password is neither in what is said nor in what is written, whatever goes wrong.
func TestSecret(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	dir := t.TempDir()
	t.Setenv("GOVC_PASSWORD", "")
	secret := filepath.Join(dir, "vsphere")
	os.WriteFile(secret, []byte("GOVC_PASSWORD="+vcsim.Password+"\n"), 0o600)
	t.Setenv("NEARMETAL_VSPHERE_FILE", secret)
	capture := filepath.Join(dir, "esx.vsphere.tar.gz")
	if _, errs, code := run(t, "", "topology", "gather", "--vsphere", s.Host, capture); code != 0 {
		t.Fatal(errs)
	}
	for _, change := range []func(){
		func() { os.Chmod(secret, 0o644) },
		func() { os.Chmod(secret, 0o600); t.Setenv("GOVC_TLS_CA_CERTS", "") },
		func() { t.Setenv("GOVC_URL", "127.0.0.1:1") },
		func() { t.Setenv("GOVC_URL", "http://u:"+vcsim.Password+"@127.0.0.1") },
	} {
		change()
		out, errs, code := run(t, "", "topology", "--vsphere", s.Host)
		if code != 125 || strings.Contains(out+errs, vcsim.Password) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%d, %s%s", code, out, errs)
		}
	}
}
