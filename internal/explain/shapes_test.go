package explain

import (
	"strings"
	"testing"

	"nearmetal/internal/host/check"
)

// TestShapes covers rare shapes of domains: the report on each, and what its fixed XML contains and does not contain.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		file, machine string
		rows          map[string]string // status, and a part of the text
		with, without []string
	}{
		{"vf-by-interface", "dl380g8", map[string]string{"device.node": "warn 0000:07:00.1 is on node 0, vCPUs are on node 1", "net.model": "ok"},
			[]string{`vcpu='7' cpuset='15'`, `<emulatorpin cpuset="0-7"/>`}, nil},
		{"pinned-unbound", "dl380g8", map[string]string{"memory.bound": "fail bound to no node", "cpu.pinned": "ok"},
			[]string{`vcpu='3' cpuset='15'`, `<memory mode="strict" nodeset="1"/>`, `<emulatorpin cpuset="8-11"/>`}, nil},
		{"siblings-as-cores", "r740", map[string]string{"cpu.pinned": "ok", "cpu.topology": "warn this host's for it: sockets=1 dies=1 cores=2 threads=2"},
			[]string{`cores='2' threads='2'`, `vcpu='1' cpuset='48'`, `emulatorpin cpuset='8,10'`}, nil},
		{"emulator-on-siblings", "r740", map[string]string{"cpu.emulator": "warn of which 48,50 are on cores of vCPUs"},
			[]string{`vcpu='3' cpuset='6'`}, []string{`emulatorpin cpuset='48,50'`}},
		{"usb-disk", "dl380g8", map[string]string{"machine.usb": "warn tablet"},
			[]string{`bus='usb'`, `<input type='tablet'/>`}, []string{`model="none"/>` + "\n" + `    <controller`, `type="usb"`}},
		{"cells-dimm", "dl380g8", map[string]string{"memory.cells": "warn 2, where 4 vCPUs"},
			[]string{`<cell id='0' cpus='0-3' memory='8388608' unit='KiB'/>`, `<node>0</node>`, `<memory unit='GiB'>10</memory>`}, []string{`<node>1</node>`}},
		{"cells-pages", "dl380g8", map[string]string{"memory.cells": "warn", "memory.pages": "fail huge pages of 2 MiB and 1 GiB"},
			[]string{`<page size='1048576' unit='KiB'/>`}, []string{`nodeset='1'`}},
		{"cells-vhostuser", "dl380g8", nil, []string{`memory='8388608' unit='KiB' memAccess='shared'`}, []string{`nodeset='0-1'`}},
		{"iothreadids", "dl380g8", map[string]string{"cpu.iothreads": "warn 0 of 2", "cpu.quota": "fail 5000 µs"},
			[]string{`iothreadpin iothread="2"`, `iothreadpin iothread="4"`}, []string{`iothread="1"`, "iothread_quota"}},
		{"aarch64", "grace", map[string]string{"machine.type": "unknown of aarch64", "cpu.model": "unknown", "machine.usb": "unknown", "cpu.topology": "unknown", "machine.accel": "ok"},
			[]string{"vcpupin", `<memballoon model="none"/>`, "machine='virt'", "<gic version='3'/>"}, []string{"q35", "host-passthrough", "hint-dedicated", "<cache", `type="usb"`}},
		{"aarch64", "dl380g8", map[string]string{"machine.accel": "fail a guest of aarch64 on a host of x86_64"}, []string{"<domain type='kvm'>"}, []string{"q35", "<cpu "}},
		{"empty-video", "dl380g8", nil, []string{"<video/>"}, nil},
		{"no-memory-element", "dl380g8", map[string]string{"memory.cells": "ok"}, []string{"memory='4194304' unit='KiB'"}, []string{"</memory>"}},
		{"unit-case", "dl380g8", nil, []string{"<memory unit='gib'>4</memory>"}, nil},
	} {
		t.Run(c.file+"-on-"+c.machine, func(t *testing.T) {
			h, d := machine(t, c.machine), open(t, "testdata/"+c.file+".xml")
			r, err := Explain(d, h)
			if err != nil {
				t.Fatal(err)
			}
			for id, want := range c.rows {
				status, said, _ := strings.Cut(want, " ")
				if row := r.row(id); row.Status != check.Status(status) || !strings.Contains(row.Found, said) {
					t.Errorf("%s: %s: %s, want %s", id, row.Status, row.Found, want)
				}
			}
			text, _, err := Fixed(d, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.with {
				if !strings.Contains(text, s) {
					t.Errorf("no %s in\n%s", s, text)
				}
			}
			for _, s := range c.without {
				if strings.Contains(text, s) {
					t.Errorf("%s is in\n%s", s, text)
				}
			}
		})
	}
}

// TestPools: a libvirt network may be a pool of VFs. Without libvirtd that is not known.
func TestPools(t *testing.T) {
	h := machine(t, "dl380g8")
	d, err := Read(strings.NewReader(`<domain type='kvm'><name>d</name><memory unit='GiB'>2</memory><vcpu>2</vcpu><os><type machine='q35'>hvm</type></os>
<cputune><vcpupin vcpu='0' cpuset='8'/><vcpupin vcpu='1' cpuset='9'/></cputune>
<devices><interface type='network'><source network='vfs'/></interface></devices></domain>`))
	if err != nil {
		t.Fatal(err)
	}
	if names := d.NetworkNames(); len(names) != 1 || names[0] != "vfs" {
		t.Errorf("%q", names)
	}
	for network, want := range map[string]string{
		"": "unknown network vfs, which may be a pool",
		"<network><name>vfs</name><forward mode='nat'/></network>":                                                                                                 "-",
		"<network><name>vfs</name><forward mode='hostdev'><pf dev='ib0'/></forward></network>":                                                                     "warn a VF of network vfs is on node 0, vCPUs are on node 1",
		"<network><name>vfs</name><forward mode='hostdev'><address type='pci' domain='0' bus='7' slot='0' function='2'/></forward></network>":                      "warn a VF of network vfs is on node 0",
		"<network><name>vfs</name><forward mode='hostdev'><address type='pci' domain='0' bus='0x77' slot='0' function='2'/></forward></network>":                   "unknown a VF of network vfs",
		"<network><name>vfs</name><forward mode='hostdev'><pf dev='ib0'/></forward><ip address='192.0.2.1'><dhcp><range start='a' end='b'/></dhcp></ip></network>": "warn",
	} {
		if d.Networks = nil; network != "" {
			d.Networks = map[string]string{"vfs": network}
		}
		r, err := Explain(d, h)
		if err != nil {
			t.Fatal(err)
		}
		status, said, _ := strings.Cut(want, " ")
		row := r.row("device.node")
		if status == "-" {
			status = string(check.NotApplicable)
		}
		if row.Status != check.Status(status) || !strings.Contains(row.Found, said) {
			t.Errorf("%s: %s: %s, want %s", network, row.Status, row.Found, want)
		}
		if row := r.row("net.model"); strings.Contains(network, "hostdev") && row.Status != check.OK {
			t.Errorf("%s: %+v", network, row)
		}
	}
}

// TestKVMWithoutKVM: type kvm has no benefit on a host that does not have it.
func TestKVMWithoutKVM(t *testing.T) {
	d := open(t, "testdata/pinned-unbound.xml")
	d.NoKVM = "no vmx or svm in /proc/cpuinfo"
	r, err := Explain(d, machine(t, "dl380g8"))
	if err != nil {
		t.Fatal(err)
	}
	if row := r.row("machine.accel"); row.Status != check.Fail || len(row.Lines) > 0 || !strings.Contains(row.Fix, d.NoKVM) {
		t.Errorf("%+v", row)
	}
}

// TestSize: sizes are read as libvirt reads them: units in any case, KiB without a unit.
func TestSize(t *testing.T) {
	for unit, want := range map[string]uint64{
		"": 3 << 10, "b": 1 << 10, "Bytes": 1 << 10, "byte": 1 << 10, "k": 3 << 10, "KiB": 3 << 10, "kib": 3 << 10, "KB": 3 << 10, "m": 3 << 20, "MIB": 3 << 20,
		"mb": 3000320, "gib": 3 << 30, "G": 3 << 30, "t": 3 << 40,
	} {
		if got, err := size(3, unit); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", unit, got, err, want)
		}
	}
	for _, unit := range []string{"x", "kibi", "ib", "gb2", "kk", " k"} {
		if got, err := size(3, unit); err == nil {
			t.Errorf("%q: %d", unit, got)
		}
	}
	if _, err := size(65, "TiB"); err == nil {
		t.Error("65 TiB")
	}
	if _, err := size(1, "EiB"); err == nil {
		t.Error("1 EiB")
	}
}

// TestBytesStay: unchanged parts stay byte for byte, including those that this program does not know.
func TestBytesStay(t *testing.T) {
	const text = `<?xml version='1.0'?>
<!-- by hand -->
<domain type='kvm'   xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
	<name>d</name><memory unit='GiB'>2</memory>
	<vcpu>2</vcpu> <future level='3'>&lt;x&gt;</future>
	<os><type arch='x86_64' machine='q35'>hvm</type></os>
	<devices><!-- none of mine -->
		<interface type='bridge'><source bridge='br0'/><model type='e1000'/><later a='1'/></interface>
		<gadget/>
		<memballoon model='virtio'/>
	</devices>
	<qemu:commandline><qemu:arg value='a"b'/></qemu:commandline>
</domain>
`
	d, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	fixed, _, err := Fixed(d, machine(t, "dl380g8"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"<?xml version='1.0'?>\n<!-- by hand -->\n<domain type='kvm'   xmlns:qemu=\"http://libvirt.org/schemas/domain/qemu/1.0\">\n\t<name>d</name><memory unit='GiB'>2</memory>\n",
		"<future level='3'>&lt;x&gt;</future>\n\t<os><type arch='x86_64' machine='q35'>hvm</type></os>\n", "<!-- none of mine -->\n",
		"<source bridge='br0'/>", "<later a='1'/></interface>\n\t\t<gadget/>\n", "\n\t<qemu:commandline><qemu:arg value='a\"b'/></qemu:commandline>\n</domain>\n",
	} {
		if !strings.Contains(fixed, s) {
			t.Errorf("no %q in\n%s", s, fixed)
		}
	}
	if !strings.Contains(fixed, `<model type="virtio"/>`) || strings.Contains(fixed, "e1000") {
		t.Errorf("not fixed:\n%s", fixed)
	}
	// If an unknown part is in a removed element, it is named, and nothing is written.
	d, err = Read(strings.NewReader(strings.Replace(text, "<memballoon model='virtio'/>", "<memballoon model='virtio'><soft/></memballoon>", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Fixed(d, machine(t, "dl380g8")); err == nil || !strings.Contains(err.Error(), "memballoon/soft") {
		t.Errorf("%v", err)
	}
}

// TestAbsentCPUs: CPUs that the host does not have are not used for QEMU's threads, and are not kept.
func TestAbsentCPUs(t *testing.T) {
	h := machine(t, "dl380g8")
	d, err := Read(strings.NewReader(`<domain type='kvm'><name>d</name><memory unit='GiB'>2</memory><vcpu>2</vcpu><iothreads>1</iothreads><os><type machine='q35'>hvm</type></os>
<cputune><vcpupin vcpu='0' cpuset='8'/><vcpupin vcpu='1' cpuset='9'/><emulatorpin cpuset='10,99'/><iothreadpin iothread='1' cpuset='98'/></cputune></domain>`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Explain(d, h)
	if err != nil {
		t.Fatal(err)
	}
	if row := r.row("cpu.emulator"); row.Status != check.Fail || !strings.Contains(row.Found, "has no 99") {
		t.Errorf("%+v", row)
	}
	text, _, err := Fixed(d, h)
	if err != nil || !strings.Contains(text, `vcpu='1' cpuset='9'`) || strings.Contains(text, "99") || strings.Contains(text, "98") || strings.Count(text, "cpuset='10-15'") != 2 {
		t.Errorf("%v: %s", err, text)
	}
}

// TestManyElements: elements that are too many to compare are rejected.
func TestManyElements(t *testing.T) {
	d, err := Read(strings.NewReader(`<domain type='kvm'><name>d</name><memory unit='GiB'>2</memory><vcpu>2</vcpu><os><type machine='pc'>hvm</type></os><devices>` +
		strings.Repeat("<controller type='ide'/><controller type='usb' model='piix3-uhci'/><input type='tablet' bus='usb'/>", 8000) + `</devices></domain>`))
	if err != nil {
		t.Fatal(err)
	}
	if text, _, err := Fixed(d, machine(t, "c6100")); err == nil && strings.Contains(text, "tablet") {
		t.Error(text[:1000])
	}
}
