package explain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
	"nearmetal/test/golden"
)

func open(t testing.TB, file string) *Domain {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := Read(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

func machine(t testing.TB, name string) *topology.Host {
	t.Helper()
	h, err := topology.Open("../../test/topology/" + name + ".machine")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGolden compares domains made by other programs, on described machines: the report on each, and the XML with all
// fixes, which is valid and has no faults left that could be fixed.
func TestGolden(t *testing.T) {
	for _, c := range []struct{ file, machine string }{
		{"nasa-at5", "c6100"},
		{"nasa-at5", "r740"},
		{"virt-install", "r740"},
		{"proxmox", "r740"},
		{"openstack", "r740"},
		{"kubevirt", "epyc-nps4"},
		{"plain", "r740"},
		{"openstack-numa", "r740"},
		{"kubevirt-numa", "r740"},
		{"vf-by-interface", "dl380g8"},
		{"pinned-unbound", "dl380g8"},
		{"siblings-as-cores", "r740"},
		{"emulator-on-siblings", "r740"},
		{"usb-disk", "dl380g8"},
		{"cells-dimm", "dl380g8"},
		{"cells-pages", "dl380g8"},
		{"cells-vhostuser", "dl380g8"},
		{"iothreadids", "dl380g8"},
		{"aarch64", "grace"},
		{"aarch64", "dl380g8"},
		{"empty-video", "dl380g8"},
		{"no-memory-element", "dl380g8"},
		{"unit-case", "dl380g8"},
	} {
		name := c.file + "-on-" + c.machine
		t.Run(name, func(t *testing.T) {
			h := machine(t, c.machine)
			d := open(t, "testdata/"+c.file+".xml")
			r, err := Explain(d, h)
			if err != nil {
				t.Fatal(err)
			}
			fixed, did, err := Fixed(d, h)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/golden/"+name+".txt", r.Text(check.Text{Columns: 100}))
			golden.Check(t, "testdata/golden/"+name+".fixed.xml", fixed)
			again, err := Read(strings.NewReader(fixed))
			if err != nil {
				t.Fatal(err)
			}
			left, err := Explain(again, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range left.Rows {
				if bad(row.Status) && (len(row.Lines) > 0 || row.Fix == "") {
					t.Errorf("fixed %v, and still %s: %s: %v", did, row.ID, row.Found, row.Lines)
				}
			}
			validate(t, fixed)
		})
	}
}

// TestNASA checks the recipe of NASA's report, on the machine for which it was written.
func TestNASA(t *testing.T) {
	r, err := Explain(open(t, "testdata/nasa-at5.xml"), machine(t, "c6100"))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"memory.bound":    "cell 0 is bound to no node",
		"cpu.topology":    "the guest sees 12 sockets of one core",
		"machine.type":    "i440fx",
		"machine.usb":     "tablet",
		"machine.balloon": "virtio",
		"cpu.emulator":    "no emulatorpin",
		"device.node":     "the guest does not see it",
	} {
		row := r.row(id)
		if row == nil || !bad(row.Status) || !strings.Contains(row.Found, want) {
			t.Errorf("%s: %+v, want %q", id, row, want)
		}
	}
	if row := r.row("cpu.pinned"); row.Status != check.OK {
		t.Errorf("%+v", row)
	}
	// Its pins assume a numbering that differs from another machine's.
	r, err = Explain(open(t, "testdata/nasa-at5.xml"), machine(t, "r740"))
	if err != nil {
		t.Fatal(err)
	}
	if row := r.row("cpu.node"); row.Status != check.Fail {
		t.Errorf("%+v", row)
	}
}

// TestAskedForAll: the faults that remain if Nova and KubeVirt are asked for everything that they can do
// (docs/libvirt.md has the list).
func TestAskedForAll(t *testing.T) {
	for file, want := range map[string]string{
		"openstack-numa": "machine.balloon machine.hint cpu.model memory.distances device.node",
		"kubevirt-numa":  "cpu.model memory.distances device.node",
	} {
		r, err := Explain(open(t, "testdata/"+file+".xml"), machine(t, "r740"))
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, row := range r.Rows {
			if bad(row.Status) {
				left = append(left, row.ID)
			}
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// TestNoKVM: if libvirtd has no KVM the XML is fixed for emulation, because libvirtd accepts no other.
func TestNoKVM(t *testing.T) {
	h := machine(t, "r740")
	d, err := Read(strings.NewReader("<domain type='qemu'><name>d</name><memory unit='GiB'>2</memory><vcpu>2</vcpu><os><type machine='q35'>hvm</type></os></domain>"))
	if err != nil {
		t.Fatal(err)
	}
	d.NoKVM = "no\nsuch accelerator"
	r, err := Explain(d, h)
	if err != nil {
		t.Fatal(err)
	}
	if row := r.row("machine.accel"); row.Status != check.Fail || len(row.Lines) > 0 || !strings.Contains(row.Fix, "such accelerator") || strings.Contains(row.Fix, "\n") {
		t.Errorf("%+v", row)
	}
	text, did, err := Fixed(d, h)
	if err != nil || !strings.Contains(text, "<domain type='qemu'>") || strings.Contains(text, "host-passthrough") || strings.Contains(text, "hint-dedicated") || !strings.Contains(text, "vcpupin") {
		t.Errorf("%v, %v\n%s", err, did, text)
	}
}

func (r *Report) row(id string) *Row {
	for i := range r.Rows {
		if r.Rows[i].ID == id {
			return &r.Rows[i]
		}
	}
	return nil
}

func validate(t *testing.T, text string) {
	t.Helper()
	if _, err := exec.LookPath("virt-xml-validate"); err != nil {
		t.Skip("no virt-xml-validate: sh scripts/install.sh libvirt")
	}
	path := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("virt-xml-validate", path, "domain").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOwnPlans: domains planned by nearmetal have no faults on their machine, unless no core is left for QEMU.
func TestOwnPlans(t *testing.T) {
	files, err := filepath.Glob("../backend/domain/testdata/golden/*.xml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".xml")
		host := name
		for host != "" {
			if _, err := os.Stat("../../test/topology/" + host + ".machine"); err == nil {
				break
			}
			host = host[:max(strings.LastIndexByte(host, '-'), 0)]
		}
		if host == "" {
			continue // not the shape of a machine
		}
		t.Run(name, func(t *testing.T) {
			h := machine(t, host)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			one, _, _ := strings.Cut(string(text), "</domain>\n")
			d, err := Read(strings.NewReader(one + "</domain>\n"))
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Lost) > 0 {
				t.Errorf("lost %v", d.Lost)
			}
			r, err := Explain(d, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Rows {
				asked := name == "r740-interleave" && (row.ID == "memory.cells" || row.ID == "cpu.topology") // one node over two
				if bad(row.Status) && row.ID != "cpu.emulator" && !(row.ID == "memory.pages" && len(row.Lines) == 0) && !asked {
					t.Errorf("%s: %s %v", row.ID, row.Found, row.Lines)
				}
			}
		})
	}
}

// TestRulesAreWhole: every row has all its texts.
func TestRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.id] || r.id == "" || r.title == "" || r.wanted == "" || r.cost == "" || r.source == "" || r.look == nil {
			t.Errorf("%+v", r)
		}
		seen[r.id] = true
	}
}

// TestHostile: XML that is not a domain, or is inconsistent, is one line.
func TestHostile(t *testing.T) {
	h := machine(t, "c6100")
	deep := strings.Repeat("<a>", 5000) + strings.Repeat("</a>", 5000)
	domain := func(inner string) string { return "<domain type='kvm'><name>x</name>" + inner + "</domain>" }
	memory := "<memory>1048576</memory>"
	for name, text := range map[string]string{
		"empty":     "",
		"no xml":    "hello",
		"other":     "<network><name>x</name></network>",
		"two":       domain(memory) + domain(memory),
		"deep":      domain(deep),
		"long":      domain("<description>" + strings.Repeat("x", 2<<20) + "</description>"),
		"xen":       "<domain type='xen'></domain>",
		"cut":       "<domain type='kvm'><name>",
		"entity":    "<!DOCTYPE d [<!ENTITY a 'aaaa'>]>" + domain("<title>&a;</title>"+memory),
		"no memory": domain(""),
		"much":      domain("<memory unit='TiB'>18446744073709551615</memory>"),
		"unit":      domain("<memory unit='\x1b'>1</memory>"),
		"vcpus":     domain(memory + "<vcpu>4294967295</vcpu>"),
		"set":       domain(memory + "<vcpu cpuset='0-4294967295'>2</vcpu>"),
		"pin":       domain(memory + "<cputune><vcpupin vcpu='0' cpuset='0-99999999'/></cputune>"),
		"cell":      domain(memory + "<vcpu>2</vcpu><cpu><numa><cell id='9' cpus='0-1' memory='1'/></numa></cpu>"),
		"twice":     domain(memory + "<vcpu>2</vcpu><cpu><numa><cell id='0' cpus='0' memory='1'/><cell id='0' cpus='1' memory='1'/></numa></cpu>"),
		"memnode":   domain(memory + "<numatune><memnode cellid='7' mode='strict' nodeset='0'/></numatune><cpu><numa><cell cpus='0' memory='1'/></numa></cpu>"),
	} {
		d, err := Read(strings.NewReader(text))
		if err == nil {
			_, err = Explain(d, h)
		}
		if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Unknown elements are named, and are kept in the fixed XML.
	d, err := Read(strings.NewReader(domain(memory + "<vcpu>2</vcpu><newer colour='red'/>")))
	if err != nil || len(d.Lost) == 0 {
		t.Fatalf("%v %v", d, err)
	}
	if text, _, err := Fixed(d, h); err != nil || !strings.Contains(text, "<newer colour='red'/>") {
		t.Errorf("%v: %s", err, text)
	}
	// Controllers that form a loop have no node.
	loop := domain(memory + "<devices>" +
		"<controller type='pci' index='1' model='pcie-root-port'><address type='pci' bus='2'/></controller>" +
		"<controller type='pci' index='2' model='pcie-root-port'><address type='pci' bus='1'/></controller>" +
		"<hostdev mode='subsystem' type='pci'><source><address bus='5' slot='0' function='1'/></source><address type='pci' bus='1'/></hostdev></devices>")
	d, err = Read(strings.NewReader(loop))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Explain(d, h); err != nil {
		t.Error(err)
	}
}

// FuzzExplain: whatever the XML, no control characters reach the terminal. make fuzz minimizes each new input with at
// most ten attempts (scripts/fuzz.sh): by default Go tries for a minute, which does not suffice here.
func FuzzExplain(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.xml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	h := machine(f, "c6100")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		r, err := Explain(d, h)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.Text(check.Text{Columns: 80}), "\x1b\r") {
			t.Error("control characters reach the terminal")
		}
		Fixed(d, h)
	})
}
