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
// nodes, distances, and what memory is in and bound by. The plans are for described hosts, of which only the argv is
// made. libvirtd refuses nodes that this host has not, so the domains' memory is bound to node 0 here.
func TestSameMachine(t *testing.T) {
	s := ofHost(t)
	for _, c := range []struct{ machine, vcpus, memory string }{
		{"r740", "22", "90GiB"},
		{"r740", "44", "160GiB"},
		{"epyc-nps4", "64", "64GiB"},
		{"spr-snc4", "48", "64GiB"},
	} {
		t.Run(c.machine+"-"+c.vcpus, func(t *testing.T) {
			s := s.with(t)
			host, err := filepath.Abs("../topology/" + c.machine + ".machine")
			if err != nil {
				t.Fatal(err)
			}
			plan := []string{"plan", "--host", host, "--vms", "1", "--vcpus", c.vcpus, "--memory", c.memory, "--accel", "tcg", "--region", "0"}
			ours := facts(t, s.nm(append(plan, "--format", "qemu")...).want(0).out)
			dir := filepath.Join(t.TempDir(), "domains")
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
			theirs := facts(t, s.virsh("domxml-to-native", "qemu-argv", "--xml", file).want(0).out)
			if !slices.Equal(ours, theirs) || len(ours) < 2 {
				t.Errorf("the driver's\n%s\nlibvirt's\n%s", strings.Join(ours, "\n"), strings.Join(theirs, "\n"))
			}
		})
	}
}

// binding matches a binding of memory up to its nodes.
var binding = regexp.MustCompile(`(<mem(?:ory|node) [^>]*nodeset=")[^"]*`)

// facts are what a command line, as a shell takes it, says of CPUs and memory.
func facts(t *testing.T, text string) []string {
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
	var list []string
	args := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := range args[:len(args)-1] {
		first, o := options(t, args[i+1])
		switch {
		case args[i] == "-smp":
			list = append(list, fmt.Sprintf("smp %s: %s sockets, %s dies, %s cores, %s threads", o["cpus"]+strings.TrimPrefix(first, "cpus="+o["cpus"]), o["sockets"], o["dies"], o["cores"], o["threads"]))
		case args[i] == "-numa" && first == "dist" && o["src"] != o["dst"]:
			list = append(list, fmt.Sprintf("distance %s-%s: %s", o["src"], o["dst"], o["val"]))
		case args[i] == "-numa" && first == "node":
			list = append(list, fmt.Sprintf("node %s: vCPUs %s", o["nodeid"], o["cpus"]))
		case args[i] == "-object" && strings.HasPrefix(first, "memory-backend-") && o["id"] != "pc.ram":
			node := strings.TrimPrefix(strings.TrimPrefix(o["id"], "ram-node"), "mem")
			list = append(list, fmt.Sprintf("memory %s: %s bytes, %s in pages of %s, by %s, shared %s, %s threads", node,
				bytesOf(t, o["size"]), first, bytesOf(t, o["hugetlbsize"]), o["policy"], o["share"], o["prealloc-threads"]))
		}
	}
	slices.Sort(list)
	return list
}

// options reads an option of QEMU's, in its own form or as JSON. Numbers that repeat are a list.
func options(t *testing.T, text string) (first string, o map[string]string) {
	t.Helper()
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
		return o["qom-type"], o
	}
	parts := strings.Split(text, ",")
	for _, p := range parts {
		if k, v, ok := strings.Cut(p, "="); ok {
			add(k, v)
		}
	}
	return parts[0], o
}

// bytesOf reads a size: 2048M, or bytes; "" is 0.
func bytesOf(t *testing.T, s string) string {
	t.Helper()
	if s == "" {
		return "0"
	}
	n, err := strconv.ParseUint(strings.TrimRight(s, "MB"), 10, 64)
	if err != nil {
		t.Fatalf("size %q", s)
	}
	if strings.HasSuffix(s, "M") {
		n <<= 20
	}
	return fmt.Sprint(n)
}
