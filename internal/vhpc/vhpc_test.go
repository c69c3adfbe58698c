package vhpc

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// sample follows the toolkit's documents: macros, ranges assigned cyclically and in runs, lists with spaces.
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
	if again, err := spec.Parse("again", text); err != nil || len(again.VMs) != 2 || strings.Join(spec.VMNames(again), " ") != "mpi-vm1 mpi-vm2 mpi-vm3 mpi-vm4 gpu-vm1" || again.VMs[0].Count != 4 || again.VMs[0].VCPUs != 10 || again.VMs[0].Memory != 50<<30 ||
		again.VMs[0].Devices[0].PF != "0000:af:00.0" || again.VMs[1].VCPUs != 4 || again.VMs[1].Devices[1].Address != "0000:5e:00.0" || again.Placement.Pin == "never" {
		t.Errorf("%v\n%s", err, text)
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"instant (line 23): the toolkit itself ignores it", "VM gpu_vm1 (line 23): its host name is gpu-vm1", "svs sw2 (line 20): made by nearmetal vsphere svs", "guest_password",
		"is_dhcp: the VMs differ"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note %q in\n%s", want, all)
		}
	}
	if strings.Contains(all+string(text), "hidden-word") {
		t.Error("a password is shown")
	}
}

// TestKeys: each of the toolkit's keys is in the cluster file or in a note.
func TestKeys(t *testing.T) {
	const vms = "[_VMS_]\nvm{0:1}: BASE "
	for _, x := range []struct {
		base, row string
		want      []string // of the cluster file
		notes     string
	}{
		{"template: t\ndatacenter: DC\nvm_folder: f\ncluster: C\ndatastore: d\nresource_pool: p\nlinked: yes\nport_group: pg", "",
			[]string{"template: t", "datacenter: DC", "folder: f", "hosts: [C]", "datastore: d", "pool: p", "linked: true", "portGroup: pg"}, ""},
		{"cluster: C", "host:h{1:2}", []string{"hosts: [h1, h2]"}, "host: the plan chooses"},
		{"is_dhcp: True\ndomain: x.test\ndns: ['192.0.2.1', '192.0.2.2']", "", []string{"dhcp: true", "domain: x.test", "dns: [192.0.2.1, 192.0.2.2]"}, ""},
		{"is_dhcp: 1\nnetmask: 255.255.0.0\ngateway: 10.0.0.1", "", []string{"dhcp: true"}, "they are DHCP's"},
		{"netmask: 255.255.255.0\ngateway: 10.0.7.1", "ip:10.0.7.{2:3}", []string{"subnet: 10.0.7.0/24", "gateway: 10.0.7.1"}, ""},
		{"netmask: 255.255.255.0", "ip:10.0.7.{7:8}", []string{"subnet: 10.0.7.0/24"}, "VM n has address n of 10.0.7.0/24"},
		{"netmask: 255.0.255.0", "ip:10.0.7.{7:8}", nil, "netmask: none of /8 to /28"},
		{"secure_boot: yes", "", []string{"secureBoot: true"}, ""},
		{"secure_boot: no", "", []string{"secureBoot: false"}, ""},
		{"vgpu: grid_v100-4q", "", []string{"vgpu: grid_v100-4q"}, ""},
		{"pvrdma_port_group: rdma\ndvs_name: sw", "", []string{"pvrdma: rdma"}, "dvs_name (line"},
		{"pf: 3b:00.0\nsriov_port_group: a", "pf:5e:00.0 sriov_port_group:a", []string{"portGroup: a", "pf: 0000:3b:00.0", "pf: 0000:5e:00.0"}, ""},
		{"port_group: a\npf: vmnic4\nsriov_port_group: b\nsriov_dvs_name: s\nallow_guest_mtu_change: yes", "", []string{"portGroup: a", "pf: vmnic4"}, "sriov_port_group (line"},
		{"memory: 7.5", "", []string{"memory: 7680MiB"}, ""},
		{"latency: high\ncpu_reservation: yes\nmemory_reservation: yes\ncores_per_socket: 4\nmmio_size: 256", "", nil, ""},
		{"cpu_reservation: yes", "", []string{"pin: never"}, "cpu_reservation: reserved with latency: high only"},
		{"cpu_shares: 10\nmemory_shares: 10", "", nil, "memory_shares (line"},
		{"guest_username: u\nguest_password: hidden-word\nscript: a.sh\nsequence: 1\nguest_hostname: h\npower: off", "", nil, "script (line"},
		{"power: off", "", nil, "powers all VMs on"},
		{"netmask: 255.255.255.0\ngateway: ${gateway}\ndomain: ${domain}\ndns: ['x']", "ip:192.0.2.{1:2}", []string{"subnet: 192.0.2.0/24"}, "gateway (line 7): it is not a value for vsphere.gateway"},
		{"script: one.sh\nbarrier: 0", "barrier:1", nil, "barrier (line"},
		{"colour: hidden-word", "", nil, "colour (line 2): no key of the toolkit's"},
		{"device: ['hidden-word', '3b:00.0']", "", []string{"address: 0000:3b:00.0"}, "device (line 4): one of them is not a PCI address"},
	} {
		f, err := Read("f", strings.NewReader("[BASE]\n"+x.base+"\n"+vms+x.row+"\n"))
		if err != nil {
			t.Errorf("%s: %v", x.base, err)
			continue
		}
		c, notes, err := f.Spec()
		if err != nil {
			t.Errorf("%s: %v", x.base, err)
			continue
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Parse("again", text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, want := range x.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", x.base, want, text)
			}
		}
		if all := strings.Join(notes, "\n"); !strings.Contains(all, x.notes) || strings.Contains(all+string(text), "hidden-word") {
			t.Errorf("%s: no note %q in\n%s", x.base, x.notes, all)
		}
	}
	for k := range vmKeys {
		if !taken[k] && why[k] == "" && k != "cluster" && k != "sriov_port_group" && k != "cpu_reservation" && k != "memory_reservation" && k != "power" {
			t.Errorf("nobody says what becomes of %s", k)
		}
	}
}

// TestForms reads the seven kinds of example files of the toolkit: linked clones in runs, cards of one slot on
// several hosts, scripts in order, virtual functions next to cards, PVRDMA, vGPUs. Planned names are those of the
// file.
func TestForms(t *testing.T) {
	const base = "[BASE]\ntemplate: t\ncpu: 4\nmemory: 16\ndatacenter: DC\ncluster: C\nvm_folder:\nresource_pool:\ndatastore: ds\nlinked: 0\n" +
		"[NET]\nis_dhcp: false\nport_group: pg\ndomain: x.test\nnetmask: 255.255.255.0\ngateway: 192.0.2.254\ndns: ['192.0.2.250', '192.0.2.251']\n" +
		"[DHCP]\nis_dhcp: true\nport_group: pg\n[VF]\nsriov_port_group: vf\npf: 0000:af:00.0\n[CARD]\ndevice: ['0000:3B:00.0']\n[HIGH]\nlatency: high\ncpu_reservation: true\nmemory_reservation: true\n" +
		"[EACH]\nhost: esx{5:8}.x.test\n[RUNS]\nhost: esx{{5:8}}.x.test\n[LOGIN]\nguest_username: root\nguest_password: hidden-word\n"
	for _, x := range []struct{ rows, names, notes string }{
		{"[_VMS_]\ngpu-vm1: BASE NET CARD host: esx5.x.test ip: 192.0.2.1\ngpu-vm2: BASE NET CARD host: esx8.x.test ip: 192.0.2.2\n", "gpu-vm1 gpu-vm2", "host: the plan chooses"},
		{"[_VMS_]\nlinked{1:8}: BASE RUNS linked: 1\n", "linked1 linked2 linked3 linked4 linked5 linked6 linked7 linked8", "host: the plan chooses"},
		{"[PV]\npvrdma_port_group: rdma\ndvs_name:sw\n[_DVS_]\nsw: pnic: vmnic5 EACH port_group: rdma datacenter: DC\n[_VMS_]\npv{1:4}: BASE NET HIGH EACH PV ip: 192.0.2.{1:4}\n", "pv1 pv2 pv3 pv4", "dvs sw (line"},
		{"[_VMS_]\nvhpc_vm01: BASE LOGIN script: a.sh barrier:0\nvhpc_vm02: BASE LOGIN script: b.sh barrier:1\n", "vhpc-vm01 vhpc-vm02", "barrier (line"},
		{"[_SVS_]\nsw: pnic: vmnic4 EACH port_group: vf\n[_VMS_]\nml1: BASE DHCP VF CARD host: esx5.x.test guest_hostname: ml1 LOGIN\nml2: BASE DHCP VF CARD host: esx8.x.test\nml{3:4}: BASE DHCP VF host: esx{6:7}.x.test\ntp{1:4}: BASE DHCP VF EACH guest_hostname: tp{1:4}\n",
			"ml1 ml2 ml3 ml4 tp1 tp2 tp3 tp4", "svs sw (line"},
		{"[_VMS_]\nsriov{1:8}: BASE DHCP HIGH EACH VF\n", "sriov1 sriov2 sriov3 sriov4 sriov5 sriov6 sriov7 sriov8", "sriov_port_group (line"},
		{"[_VMS_]\nvgpu{1:4}: BASE DHCP HIGH vgpu: grid-4q\n", "vgpu1 vgpu2 vgpu3 vgpu4", ""},
		{"[_VMS_]\nVM_1: BASE\nvm-1: BASE\n1: BASE\nlocalhost: BASE\n" + strings.Repeat("x", 80) + ": BASE\n",
			"vm-1 vm-1-2 vm-1-3 vm-localhost " + strings.Repeat("x", 58), "VM 1 (line"},
	} {
		f, err := Read("f", strings.NewReader(base+x.rows))
		if err != nil {
			t.Errorf("%s: %v", x.rows, err)
			continue
		}
		c, notes, err := f.Spec()
		if err != nil {
			t.Errorf("%s: %v", x.rows, err)
			continue
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := spec.Parse("again", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := strings.Join(spec.VMNames(again), " "); got != x.names {
			t.Errorf("%q, not %q\n%s", got, x.names, text)
		}
		if all := strings.Join(notes, "\n"); !strings.Contains(all, x.notes) || strings.Contains(all+string(text), "hidden-word") {
			t.Errorf("no note %q in\n%s", x.notes, all)
		}
	}
}

func TestBad(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"cpu: 1\n", "f:1: there is no section"},
		{"[A]\n[A]\n", "twice"},
		{"[_VMS_]\nvm1: BASE\n", `f:2: "BASE" is neither`},
		{"[_VMS_]\nvm{1:2}: host:h{1:3}\n", "3 values for 2 VMs"},
		{"[_VMS_]\nvm{1:3}: host:h{{1:2}}\n", "2 values for 3 VMs"},
		{"[_VMS_]\nvm{1:99999}: cpu:1\n", "more than 1024"},
		{"[_VMS_]\nvm1: cpu:1\nvm1: cpu:1\n", "on line 2 already"},
		{"[_VMS_]\nvm1: cpu:many\n", "cpu is not a number"},
		{"[_VMS_]\nvm1: memory:NaN\n", "memory is not a number"},
		{"[_VMS_]\nvm1: cpu:1 secure_boot:maybe\n", "secure_boot is neither true nor false"},
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
