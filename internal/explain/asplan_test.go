package explain

import (
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/topology"
)

// TestPlan converts a domain's XML into a plan: its pins, bindings and topology.
func TestPlan(t *testing.T) {
	h, err := topology.Open("../../test/topology/r740.machine")
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) *Domain {
		t.Helper()
		d, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	vm, err := Plan(read(`<domain type='kvm'><name>d</name><memory unit='GiB'>4</memory><vcpu current='4'>8</vcpu>
		<memoryBacking><hugepages><page size='2' unit='M' nodeset='1'/></hugepages></memoryBacking>
		<cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='3' cpuset='5-6'/><emulatorpin cpuset='0'/></cputune>
		<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='preferred' nodeset='1'/></numatune>
		<cpu><topology sockets='2' cores='2' threads='2'/><numa><cell id='0' cpus='0-1' memory='2' unit='GiB'/><cell id='1' cpus='2-7' memory='2' unit='GiB'/></numa></cpu>
		<devices><hostdev mode='subsystem' type='pci'><source><address domain='0' bus='0x41' slot='0x10' function='1'/></source></hostdev></devices></domain>`), h)
	if err != nil {
		t.Fatal(err)
	}
	if vm.VCPUs != 4 || vm.Sockets != 1 || vm.Dies != 1 || vm.Cores != 2 || vm.Threads != 2 || vm.MemoryBytes != 4<<30 {
		t.Errorf("%+v", vm)
	}
	if !slices.Equal(vm.Pins[0], []int{2}) || vm.Pins[1] != nil || !slices.Equal(vm.Pins[3], []int{5, 6}) || !slices.Equal(vm.EmulatorCPUs, []int{0}) {
		t.Errorf("pins %v, emulator %v", vm.Pins, vm.EmulatorCPUs)
	}
	if len(vm.Nodes) != 2 || vm.Nodes[0].PageBytes != 0 || vm.Nodes[1].PageBytes != 2<<20 || vm.Nodes[1].HostNodes != nil ||
		!slices.Equal(vm.Nodes[0].HostNodes, []int{0, 1}) || !slices.Equal(vm.Nodes[1].VCPUs, []int{2, 3}) {
		t.Errorf("%+v", vm.Nodes)
	}
	if len(vm.Devices) != 1 || vm.Devices[0].Address != "0000:41:10.1" || vm.Devices[0].Node != -1 {
		t.Errorf("%+v", vm.Devices)
	}
	if _, err := Plan(read(`<domain type='kvm'><name>d</name><memory>1048576</memory><vcpu>4</vcpu><cpu><topology sockets='1' cores='2' threads='1'/></cpu></domain>`), h); err == nil || !strings.Contains(err.Error(), "is for 2 vCPUs") {
		t.Errorf("%v", err)
	}
}
