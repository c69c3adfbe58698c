// Package domains makes domains of libvirt at random, and checks what nearmetal explain makes of them with libvirt's
// own schema and its test driver.
package domains

import (
	"fmt"
	"math/rand"
	"strings"

	"nearmetal/internal/topology"
)

// writer writes a domain's XML.
type writer struct {
	*rand.Rand
	h      *topology.Host
	b      strings.Builder
	arch   string
	vcpus  int
	cells  int // 0: the guest sees none
	thread int // a disk's thread, by its ID; 0: there is none
	usb    bool
	units  []string
}

// Random returns a domain for a host, as somebody may have written it. Most are what libvirt takes.
func Random(r *rand.Rand, h *topology.Host, name string) string {
	w := &writer{Rand: r, h: h, arch: "x86_64", vcpus: 1 + r.Intn(12), units: []string{"KiB", "kib", "MiB", "MIB", "mib", "M", "m"}}
	if w.one(8) {
		w.arch = w.any("aarch64", "s390x", "ppc64le", "i686")
	}
	if w.one(3) {
		w.cells = 1 + w.Intn(min(w.vcpus, 4))
	}
	w.domain(name)
	text := w.b.String()
	if w.one(3) {
		text = strings.ReplaceAll(text, "\n", "")
	}
	if w.one(2) {
		text = strings.ReplaceAll(text, "'", `"`)
	}
	return text
}

// one says yes once in n times.
func (w *writer) one(n int) bool { return w.Intn(n) == 0 }

func (w *writer) any(list ...string) string { return list[w.Intn(len(list))] }

// say writes a line.
func (w *writer) say(format string, a ...any) {
	fmt.Fprintf(&w.b, format+"\n", a...)
}

// maybe writes a line once in n times.
func (w *writer) maybe(n int, format string, a ...any) {
	if w.one(n) {
		w.say(format, a...)
	}
}

func (w *writer) x86() bool { return w.arch == "x86_64" || w.arch == "i686" }

// size is MiB in some unit.
func (w *writer) size(mib int) (int, string) {
	switch unit := w.any(w.units...); strings.ToLower(unit)[0] {
	case 'k':
		return mib << 10, unit
	default:
		return mib, unit
	}
}

func (w *writer) domain(name string) {
	own := w.one(4) // arguments of QEMU's own
	if own {
		w.say("<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>")
	} else {
		w.say("<domain type='%s'>", w.any("kvm", "kvm", "kvm", "qemu"))
	}
	w.say("  <name>%s</name>", name)
	w.maybe(3, "  <!-- kept: %s -->", name)
	w.maybe(4, "  <metadata><app:x xmlns:app='http://example.org/app'><app:y z='1'/>  text</app:x></metadata>")
	each := 256 << w.Intn(4) // MiB of a cell
	total := each * max(w.cells, 1)
	dimms := 0
	if w.cells > 0 && w.one(3) {
		dimms = 1 + w.Intn(2)
		w.say("  <maxMemory slots='8' unit='GiB'>64</maxMemory>")
	}
	if w.cells == 0 || !w.one(4) {
		n, unit := w.size(total + dimms*512)
		w.say("  <memory unit='%s'>%d</memory>", unit, n)
	}
	if w.one(3) {
		n, unit := w.size(total / 2)
		w.say("  <currentMemory unit='%s'>%d</currentMemory>", unit, n)
	}
	w.backing()
	w.cpuCount()
	w.tuning()
	w.numatune()
	w.system()
	w.cpu(each)
	w.clock()
	w.maybe(4, "  <on_reboot>restart</on_reboot>")
	if !w.one(12) {
		w.say("  <devices>")
		w.devices(dimms)
		w.say("  </devices>")
	}
	if own {
		w.say("  <qemu:commandline><qemu:arg value='-no-hpet'/><qemu:env name='A' value='&lt;b&gt;'/></qemu:commandline>")
	}
	w.say("</domain>")
}

func (w *writer) backing() {
	if !w.one(2) {
		return
	}
	w.say("  <memoryBacking>")
	switch w.Intn(5) {
	case 0:
		w.say("    <hugepages/>")
	case 1:
		w.say("    <hugepages><page size='%s' unit='%s'/></hugepages>", w.any("2", "1"), w.any("MiB", "GiB", "gib", "m"))
	case 2:
		if w.cells > 1 {
			w.say("    <hugepages><page size='2048' nodeset='0'/><page size='1' unit='G' nodeset='1-%d'/></hugepages>", w.cells-1)
		}
	}
	w.maybe(3, "    <nosharepages/>")
	w.maybe(4, "    <locked/>")
	w.maybe(4, "    <source type='%s'/>", w.any("anonymous", "memfd", "file"))
	w.maybe(4, "    <access mode='%s'/>", w.any("shared", "private"))
	w.maybe(4, "    <discard/>")
	w.say("  </memoryBacking>")
}

func (w *writer) cpuCount() {
	switch w.Intn(8) {
	case 0:
		w.say("  <vcpu placement='auto'>%d</vcpu>", w.vcpus)
	case 1:
		w.say("  <vcpu placement='static' cpuset='%d-%d'>%d</vcpu>", w.cpu0(), w.cpu0()+64, w.vcpus)
	case 2:
		w.say("  <vcpu current='%d'>%d</vcpu>", max(1, w.vcpus-1), w.vcpus)
	case 3:
		w.say("  <vcpu cpuset='0-3,^2'>%d</vcpu>", w.vcpus)
	default:
		w.say("  <vcpu>%d</vcpu>", w.vcpus)
	}
	switch w.Intn(5) {
	case 0:
		w.thread = 1 + w.Intn(3)
		w.say("  <iothreads>%d</iothreads>", w.thread)
	case 1:
		w.thread = 7
		w.say("  <iothreads>3</iothreads><iothreadids><iothread id='2'/><iothread id='7'/></iothreadids>")
	case 2:
		w.thread = 5
		w.say("  <iothreadids><iothread id='5'/></iothreadids>")
	}
}

// cpu0 is a low number of a CPU.
func (w *writer) cpu0() int { return w.Intn(4) }

// tuning writes pins: none, some, wide ones, those that are shared, and good ones on one node or several.
func (w *writer) tuning() {
	if w.one(4) {
		return
	}
	w.say("  <cputune>")
	w.maybe(5, "    <shares>2048</shares>")
	w.maybe(5, "    <period>100000</period><quota>%s</quota>", w.any("50000", "-1"))
	w.maybe(6, "    <iothread_period>100000</iothread_period><iothread_quota>5000</iothread_quota>")
	w.maybe(6, "    <emulator_period>100000</emulator_period><emulator_quota>20000</emulator_quota>")
	pins := w.pins()
	for v, set := range pins {
		w.say("    <vcpupin vcpu='%d' cpuset='%s'/>", v, set)
	}
	w.maybe(2, "    <emulatorpin cpuset='%d-%d'/>", w.Intn(8), 8+w.Intn(8))
	if w.thread > 0 {
		w.maybe(2, "    <iothreadpin iothread='%d' cpuset='%d'/>", w.thread, w.Intn(12))
	}
	w.maybe(8, "    <vcpusched vcpus='0' scheduler='fifo' priority='1'/>")
	w.maybe(20, "    <cachetune vcpus='0'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>")
	w.say("  </cputune>")
}

func (w *writer) pins() []string {
	var ids []int
	switch w.Intn(6) {
	case 0:
		return nil
	case 1: // those of a node
		n := w.h.Nodes[w.Intn(len(w.h.Nodes))]
		ids = n.CPUs
	case 2: // by cores, with their siblings beside them
		per := map[int][]int{}
		for _, c := range w.h.CPUs {
			per[c.Core] = append(per[c.Core], c.ID)
		}
		for core := 0; core < len(per); core++ {
			ids = append(ids, per[core]...)
		}
	case 3: // in an order of their own
		for _, k := range w.Perm(len(w.h.CPUs)) {
			ids = append(ids, w.h.CPUs[k].ID)
		}
	default:
		for _, c := range w.h.CPUs {
			ids = append(ids, c.ID)
		}
	}
	var list []string
	for v := 0; v < w.vcpus && v < len(ids); v++ {
		switch {
		case w.one(30):
			list = append(list, "0-3") // wide
		case w.one(30) && v > 0:
			list = append(list, list[v-1]) // shared
		default:
			list = append(list, fmt.Sprint(ids[v]))
		}
	}
	if w.one(6) {
		list = list[:len(list)/2] // some
	}
	return list
}

func (w *writer) numatune() {
	if w.one(2) {
		return
	}
	w.say("  <numatune>")
	node := func() int { return w.Intn(len(w.h.Nodes)) }
	switch w.Intn(4) {
	case 0:
		w.say("    <memory mode='%s' nodeset='%d'/>", w.any("strict", "preferred", "interleave"), node())
	case 1:
		w.say("    <memory mode='strict' placement='auto'/>")
	case 2:
		w.say("    <memory mode='strict' nodeset='0-%d'/>", len(w.h.Nodes)-1)
	}
	for c := 0; c < w.cells && w.one(2); c++ {
		w.say("    <memnode cellid='%d' mode='strict' nodeset='%d'/>", c, node())
	}
	w.say("  </numatune>")
}

// system writes os and features.
func (w *writer) system() {
	machine := map[string]string{"aarch64": "virt", "s390x": "s390-ccw-virtio", "ppc64le": "pseries"}[w.arch]
	if w.x86() {
		machine = w.any("q35", "q35", "pc-q35-7.2", "pc", "pc-i440fx-7.2", "")
	}
	said := ""
	if w.arch != "x86_64" || !w.one(6) {
		said += fmt.Sprintf(" arch='%s'", w.arch)
	}
	if machine != "" {
		said += fmt.Sprintf(" machine='%s'", machine)
	}
	w.say("  <os><type%s>hvm</type></os>", said)
	if w.one(2) {
		w.say("  <features>")
		w.maybe(2, "    <acpi/>")
		if w.x86() {
			w.maybe(2, "    <apic/>")
			w.maybe(2, "    <kvm><%s state='on'/></kvm>", w.any("hidden", "hint-dedicated"))
			w.maybe(4, "    <ioapic driver='qemu'/>")
		}
		w.say("  </features>")
	}
}

func (w *writer) cpu(each int) {
	if w.cells == 0 && w.one(3) {
		return
	}
	mode := "mode='" + w.any("host-passthrough", "host-passthrough", "host-model", "maximum") + "'"
	model := ""
	if w.x86() {
		switch w.Intn(6) {
		case 0:
			mode, model = "mode='custom' match='exact' check='partial'", "<model fallback='allow'>Skylake-Server</model><vendor>Intel</vendor><feature policy='require' name='vmx'/><feature policy='disable' name='hle'/>"
		case 1:
			mode, model = "mode='host-passthrough' check='none' migratable='off'", "<cache mode='passthrough'/><feature policy='disable' name='svm'/>"
		case 2:
			mode = ""
		}
	}
	w.say("  <cpu %s>%s", mode, model)
	switch n := w.vcpus; w.Intn(4) {
	case 0:
		w.say("    <topology sockets='1' cores='%d' threads='1'/>", n)
	case 1:
		w.say("    <topology sockets='%d' cores='1' threads='1'/>", n)
	case 2:
		if n%2 == 0 {
			w.say("    <topology sockets='%s' dies='1' cores='%d' threads='%s'/>", "1", n/2, "2")
		}
	}
	if w.cells > 0 {
		w.numa(each)
	}
	w.say("  </cpu>")
}

func (w *writer) numa(each int) {
	w.say("    <numa>")
	numbered := !w.one(3)
	bare := w.one(8) // the last one has memory alone
	access := w.any("", "", "", " memAccess='shared'", " discard='yes'")
	distances, hmat := w.one(3), w.one(20)
	for c := range w.cells {
		from, to := c*w.vcpus/w.cells, (c+1)*w.vcpus/w.cells-1
		cpus := fmt.Sprintf(" cpus='%d-%d'", from, to)
		if c > 0 && c == w.cells-1 && bare {
			cpus = ""
		}
		id := ""
		if numbered {
			id = fmt.Sprintf(" id='%d'", c)
		}
		n, unit := w.size(each)
		w.b.WriteString(fmt.Sprintf("      <cell%s%s memory='%d' unit='%s'%s", id, cpus, n, unit, access))
		if !distances {
			w.say("/>")
			continue
		}
		w.say("><distances>")
		for o := range w.cells {
			w.say("<sibling id='%d' value='%d'/>", o, 10+11*min(1, (o-c)*(o-c)))
		}
		w.say("</distances></cell>")
	}
	if hmat {
		w.say("      <interconnects><latency initiator='0' target='0' type='access' value='5'/></interconnects>")
	}
	w.say("    </numa>")
}

func (w *writer) clock() {
	if w.one(2) {
		w.say("  <clock offset='utc'>")
		w.maybe(2, "    <timer name='rtc' tickpolicy='catchup'/>")
		if w.x86() {
			w.maybe(3, "    <timer name='tsc' mode='%s'/>", w.any("emulate", "native"))
			w.maybe(3, "    <timer name='hpet' present='no'/>")
		}
		w.say("  </clock>")
	}
}
