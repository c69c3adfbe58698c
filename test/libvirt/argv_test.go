package libvirt

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/topology"
)

// What libvirtd makes of a plan's domain is the same machine as that of nearmetal's own driver: vCPUs, topology,
// nodes, distances, memory, the region, and each device behind a port of the same bus. What else differs is
// ownOnly and libvirtOnly, and measurements/libvirt.md names it. The plans are for described hosts, of which only the
// argv is made. libvirtd refuses nodes that this host has not, so the domains' memory is bound to node 0 here.
func TestSameMachine(t *testing.T) {
	s := ofHost(t)
	for _, c := range []struct{ machine, file string }{
		{"r740", "vms: [{vcpus: 22, memory: 90GiB}]"},
		{"r740", "vms: [{vcpus: 44, memory: 160GiB}]"}, // huge pages of 1 GiB
		{"epyc-nps4", "vms: [{vcpus: 64, memory: 64GiB}]"},
		{"spr-snc4", "vms: [{vcpus: 48, memory: 64GiB}]"},
		// Two expanders, each with a VF, and a region as a device.
		{"epyc-nps4", "vms: [{vcpus: 32, memory: 64GiB, devices: [{pf: mlx5_0}, {pf: mlx5_1}]}]\n" +
			"placement: {hostNodes: [2, 5]}\nregion: {size: 128MiB}"},
		// A region as an NVDIMM.
		{"r740", "vms: [{vcpus: 44, memory: 120GiB, devices: [{pf: mlx5_0}]}]\nplacement: {pages: 1GiB}\nregion: {size: 128MiB, device: devdax}"},
		// A device where the guest has one node.
		{"r740", "vms: [{vcpus: 8, memory: 16GiB, devices: [{pf: mlx5_0}]}]"},
	} {
		t.Run(c.machine, func(t *testing.T) {
			s := s.with(t)
			if !strings.Contains(c.file, "region") {
				c.file += "\nregion: {size: 0}"
			}
			host, err := filepath.Abs("../topology/" + c.machine + ".machine")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			cluster := filepath.Join(dir, "cluster.yaml")
			if err := os.WriteFile(cluster, []byte("version: 1\naccel: tcg\n"+c.file+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			plan := []string{"plan", "--host", host, "-f", cluster}
			ours := arguments(t, s.nm(append(plan, "--format", "qemu")...).want(0).out)
			s.nm(append(plan, "--format", "libvirt", "--dir", dir)...).want(0)
			file := filepath.Join(dir, "vm0.xml")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = binding.ReplaceAll(text, []byte("${1}0"))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			theirs := arguments(t, s.virsh("domxml-to-native", "qemu-argv", "--xml", file).want(0).out)
			for i, same := range [][2][]string{
				{facts(t, ours), facts(t, theirs)},
				{without(others(ours), others(theirs)), ownOnly},
				{without(others(theirs), others(ours)), libvirtOnly},
			} {
				if i == 0 && (!slices.Equal(same[0], same[1]) || len(same[0]) < 3) {
					t.Errorf("the driver's\n%s\nlibvirt's\n%s", strings.Join(same[0], "\n"), strings.Join(same[1], "\n"))
				}
				if left := without(same[0], same[1]); i > 0 && len(left) > 0 {
					t.Errorf("only %s has, and no document names:\n%s", []string{"", "the driver", "libvirt"}[i], strings.Join(left, "\n"))
				}
			}
		})
	}
}

// What else the command lines of one and the same plan say. It is no part of the plan.
var (
	ownOnly = []string{
		"-machine i8042=off", "-machine sata=off", "-machine smbus=off", // devices that nobody needs
		"-machine q35", // libvirt writes the version: pc-q35-7.2
		"-no-reboot",
		"-accel tb-size=64", // a running cluster's domain has it, too
	}
	libvirtOnly = []string{
		"-machine usb=off",                             // q35 has none by itself
		"-cpu l3-cache=on", "-cpu host-cache-info=off", // QEMU's own choice
		"-overcommit mem-lock=off", "-rtc base=utc", // QEMU's own choice
		"-S", "-no-shutdown", "-msg timestamp=on", // libvirtd looks at a VM before it runs, and after its end
		"-boot strict=on",                                                             // a disk is started from only where the XML says so
		"-audiodev none",                                                              // no sound
		"-object secret",                                                              // for encrypted disks
		"-machine acpi=on", "-global ICH9-LPC.noreboot=off", "-watchdog-action reset", // libvirt 11; QEMU's own choice
	}
)

// binding matches a binding of memory up to its nodes.
var binding = regexp.MustCompile(`(<mem(?:ory|node) [^>]*nodeset=")[^"]*`)

// argument is an option of QEMU's: -smp, and what stands behind it.
type argument struct {
	name, first string            // first: the word without a key, as the kind of a device
	o           map[string]string // key and value
}

// arguments reads a command line, as a shell takes it, from QEMU's name on.
func arguments(t *testing.T, text string) []argument {
	t.Helper()
	var words []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "#") {
			words = append(words, line)
		}
	}
	out, err := exec.Command("sh", "-c", "set -- "+strings.Join(words, "\n")+"\nprintf '%s\\n' \"$@\"").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []argument
	for _, w := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if strings.HasPrefix(w, "-") {
			list = append(list, argument{name: w, o: map[string]string{}})
		} else if n := len(list); n > 0 {
			list[n-1].first, list[n-1].o = options(w)
		}
	}
	return list
}

// facts are what a command line says of CPUs, memory, the region and devices.
func facts(t *testing.T, args []argument) []string {
	t.Helper()
	var list []string
	say := func(f string, a ...any) { list = append(list, fmt.Sprintf(f, a...)) }
	region := map[string]string{} // what the region's memory is, by its id
	bus := map[string]string{"pcie.0": "the root", "": "the root"}
	for _, a := range args {
		o := a.o
		switch {
		case a.name == "-smp":
			say("smp %s: %s sockets, %s dies, %s cores, %s threads", o["cpus"]+a.first, o["sockets"], o["dies"], o["cores"], o["threads"])
		case a.name == "-m":
			if a.first != "" {
				o["size"] = a.first + "M"
			}
			say("memory %s, at most %s in %s slots", bytesOf(t, o["size"]), bytesOf(t, o["maxmem"]), o["slots"])
		case a.name == "-numa" && a.first == "dist" && o["src"] != o["dst"]:
			say("distance %s-%s: %s", o["src"], o["dst"], o["val"])
		case a.name == "-numa" && a.first == "node":
			say("node %s: vCPUs %s", o["nodeid"], o["cpus"])
		case isMemory(a) && (o["id"] == "region" || o["mem-path"] != ""):
			region[o["id"]] = fmt.Sprintf("%s of %s bytes, shared %s", a.first, bytesOf(t, o["size"]), o["share"])
		case isMemory(a) && o["id"] != "pc.ram":
			node := strings.TrimPrefix(strings.TrimPrefix(o["id"], "ram-node"), "mem")
			say("memory %s: %s bytes, %s in pages of %s, by %s, shared %s, %s threads of its own node: %t", node,
				bytesOf(t, o["size"]), a.first, bytesOf(t, o["hugetlbsize"]), o["policy"], o["share"], o["prealloc-threads"], o["prealloc-context"] != "")
		case a.name != "-device":
		case a.first == "pxb-pcie":
			bus[o["id"]] = fmt.Sprintf("the expander from bus %s on node %s", o["bus_nr"], o["numa_node"])
		case a.first == "pcie-root-port":
			bus[o["id"]] = fmt.Sprintf("port %s of %s", o["chassis"], bus[o["bus"]])
		case a.first == "vfio-pci":
			say("device %s: in %s", o["host"], bus[o["bus"]])
		case a.first == "ivshmem-plain" || a.first == "nvdimm":
			say("region: %s on %s, %s", a.first, bus[o["bus"]], region[o["memdev"]])
		}
	}
	slices.Sort(list)
	return list
}

func isMemory(a argument) bool {
	return a.name == "-object" && strings.HasPrefix(a.first, "memory-backend-")
}

// others are what a command line says besides: neither a fact, nor what only a running VM has or a name is.
func others(args []argument) []string {
	var list []string
	for _, a := range args {
		switch a.name {
		case "-smp", "-m", "-numa", "-device", "-name", "-uuid", "-display", "-chardev", "-mon", "-serial", "-kernel", "-initrd", "-append":
			continue
		case "-object":
			if !isMemory(a) && a.first != "thread-context" {
				list = append(list, a.name+" "+a.first)
			}
			continue
		}
		if a.first != "" && !strings.HasPrefix(a.first, "pc-q35-") || len(a.o) == 0 {
			list = append(list, strings.TrimSpace(a.name+" "+a.first))
		}
		for k, v := range a.o {
			if k != "id" {
				list = append(list, fmt.Sprintf("%s %s=%s", a.name, k, v))
			}
		}
	}
	slices.Sort(list)
	return list
}

// without are those of list that less has not.
func without(list, less []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(less, s) })
}

// options reads an option of QEMU's, in its own form or as JSON. Numbers that repeat are a list.
func options(text string) (first string, o map[string]string) {
	o = map[string]string{}
	add := func(k, v string) {
		if list, err := topology.ParseList(v, 1<<16); err == nil && o[k] != "" && (k == "cpus" || k == "host-nodes") {
			had, _ := topology.ParseList(o[k], 1<<16)
			v = topology.FormatList(append(had, list...))
		}
		o[k] = v
	}
	var j map[string]any
	if json.Unmarshal([]byte(text), &j) == nil {
		for k, v := range j {
			switch v := v.(type) {
			case bool:
				o[k] = map[bool]string{true: "on", false: "off"}[v]
			case float64:
				o[k] = strconv.FormatFloat(v, 'f', -1, 64)
			case []any:
				for _, n := range v {
					add(k, fmt.Sprint(n))
				}
			default:
				o[k] = fmt.Sprint(v)
			}
		}
		for _, k := range []string{"qom-type", "driver"} {
			if o[k] != "" && first == "" {
				first = o[k]
				delete(o, k)
			}
		}
		return first, o
	}
	for i, p := range strings.Split(text, ",") {
		k, v, ok := strings.Cut(p, "=")
		switch {
		case ok:
			add(k, v)
		case strings.HasPrefix(p, "-"): // a feature of a CPU
			add(p[1:], "off")
		case i == 0:
			first = p
		}
	}
	return first, o
}

// bytesOf reads a size: 2048M, 2097152k, or bytes; "" is 0.
func bytesOf(t *testing.T, s string) string {
	t.Helper()
	if s == "" {
		return "0"
	}
	n, err := strconv.ParseUint(strings.TrimRight(s, "kMB"), 10, 64)
	if err != nil {
		t.Fatalf("size %q", s)
	}
	switch {
	case strings.HasSuffix(s, "M"):
		n <<= 20
	case strings.HasSuffix(s, "k"):
		n <<= 10
	}
	return fmt.Sprint(n)
}
