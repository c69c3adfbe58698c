package vhpc

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// As the toolkit's documents describe it: macros, ranges in turn and in runs, lists with spaces.
const sample = `# two hosts
[BASE]
template: hpc
cpu: 10
memory: 50
vm_folder:
guest_password: hidden-word
[NET]
is_dhcp: true
dns: ['192.0.2.1', '192.0.2.2']
[SRIOV]
sriov_port_group: pg
pf: 0000:AF:00.0
[GPU]
device: ['0000:3B:00.0', '5e:00.0']
[LATENCY]
latency: high
[_SVS_]
sw: pnic: vmnic4 host: esx-0{5:6} port_group: pg
sw2: pnic: vmnic5 host: esx-0{5:6} port_group: pg2
[_VMS_]
mpi-vm{1:4}: BASE NET SRIOV LATENCY host: esx-0{5:6}.example.com ip:192.0.2.{{1:2}}
gpu_vm1: BASE GPU LATENCY cpu:4 instant: true host: esx-05
`

func TestRead(t *testing.T) {
	f, err := Read("f", strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.VMs) != 5 || len(f.Switches) != 2 || f.Switches[0].Keys["pnic"] != "vmnic4" {
		t.Fatalf("%+v", f)
	}
	for i, want := range []string{"mpi-vm1 esx-05.example.com 192.0.2.1", "mpi-vm2 esx-06.example.com 192.0.2.1", "mpi-vm3 esx-05.example.com 192.0.2.2", "mpi-vm4 esx-06.example.com 192.0.2.2", "gpu_vm1 esx-05 "} {
		v := f.VMs[i]
		if got := v.Name + " " + v.Keys["host"] + " " + v.Keys["ip"]; got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	c, notes, err := f.Spec()
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := spec.Parse("again", text); err != nil || len(again.VMs) != 2 || again.VMs[0].Count != 4 || again.VMs[0].VCPUs != 10 || again.VMs[0].Memory != 50<<30 ||
		again.VMs[0].Devices[0].PF != "0000:af:00.0" || again.VMs[1].VCPUs != 4 || again.VMs[1].Devices[1].Address != "0000:5e:00.0" || again.Placement.Pin == "never" {
		t.Errorf("%v\n%s", err, text)
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"instant (line 23): the toolkit itself ignores it", "VM mpi-vm1 is called mpi-vm0", "VM gpu_vm1 is called gpu-vm0", "template (line 22)", "the first row only", "guest_password"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note %q in\n%s", want, all)
		}
	}
	if strings.Contains(all+string(text), "hidden-word") {
		t.Error("a password is shown")
	}
}

func TestBad(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"cpu: 1\n", "f:1: there is no section"},
		{"[A]\n[A]\n", "twice"},
		{"[_VMS_]\nvm1: BASE\n", `f:2: "BASE" is neither`},
		{"[_VMS_]\nvm1: colour:red\n", `f:2: key "colour" is none`},
		{"[_VMS_]\nvm{1:2}: host:h{1:3}\n", "3 values for 2 VMs"},
		{"[_VMS_]\nvm{1:3}: host:h{{1:2}}\n", "2 values for 3 VMs"},
		{"[_VMS_]\nvm{1:99999}: cpu:1\n", "more than 1024"},
		{"[_VMS_]\nvm1: cpu:1\nvm1: cpu:1\n", "on line 2 already"},
		{"[_VMS_]\nvm1: cpu:many\n", "cpu is no number"},
		{"[_VMS_]\nvm1: device:__import__('os')\n", "only PCI addresses"},
		{"[BASE]\ncpu: 1\n", "no VMs"},
		{strings.Repeat("# x\n", 300000), "more than"},
	} {
		f, err := Read("f", strings.NewReader(x.text))
		if err == nil {
			_, _, err = f.Spec()
		}
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample)
	f.Add("[_VMS_]\nvm{1:2}: device: ['a', ")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Read("f", strings.NewReader(text)); err == nil {
			if c, _, err := r.Spec(); err == nil && len(c.VMs) == 0 {
				t.Error("a cluster without VMs")
			}
		}
	})
}
