package e2e

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
	"nearmetal/internal/verify"
)

// clusterFile writes a cluster file and returns its path.
func clusterFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// record is what ps --json says of a cluster.
func record(t *testing.T, name string) *state.Record {
	t.Helper()
	r := &state.Record{}
	if err := json.Unmarshal([]byte(nm(t, "ps", name, "--json").want(t, 0).out), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVerifyNodes boots a VM with two nodes on a host that may have one: all is as planned,
// in nearmetal's eyes and in hwloc's.
func TestVerifyNodes(t *testing.T) {
	if _, err := exec.LookPath("lstopo-no-graphics"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("hwloc is not installed (hwloc-nox): ", err)
	}
	file := clusterFile(t, "vms: [{vcpus: 4, memory: 512MiB}]\nplacement: {nodes: 2}\n")
	r := nm(t, "up", "-f", file, "--no-share").want(t, 0)
	name := strings.TrimSpace(r.out)
	t.Cleanup(func() { nm(t, "down", name) })
	if strings.Contains(r.err, "not as planned") {
		t.Error("the start warns: ", r.err)
	}
	nm(t, "verify", name).want(t, 0, "vCPUs of node 1 in the guest", "distances of node 1 in the guest", "memory of node 0 in the guest")
	rec := record(t, name)
	if n := len(rec.Plan.VMs[0].Nodes); n != 2 {
		t.Fatalf("%d nodes are planned", n)
	}
	out := nm(t, "exec", "-c", name, "--", "lstopo-no-graphics", "--of", "xml").want(t, 0).out
	compareHwloc(t, &rec.Plan.VMs[0], out)
}

// object is one of hwloc's.
type object struct {
	Type     string   `xml:"type,attr"`
	OSIndex  int      `xml:"os_index,attr"`
	CPUs     string   `xml:"cpuset,attr"`
	Children []object `xml:"object"`
}

// find collects the sets of CPUs of the objects of a type, by their order.
func (o *object) find(kind string) [][]int {
	var sets [][]int
	if o.Type == kind {
		sets = append(sets, cpuMask(o.CPUs))
	}
	for i := range o.Children {
		sets = append(sets, o.Children[i].find(kind)...)
	}
	return sets
}

// cpuMask reads hwloc's sets: "0x0000000f".
func cpuMask(s string) []int {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil {
		return nil
	}
	var cpus []int
	for i := 0; i < 32; i++ {
		if n>>i&1 == 1 {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// compareHwloc compares hwloc's picture of a VM, as XML, with its plan.
func compareHwloc(t *testing.T, p *plan.VM, text string) {
	t.Helper()
	var top struct {
		Objects   []object `xml:"object"`
		Distances []struct {
			Type    string `xml:"type,attr"`
			Indexes string `xml:"indexes"`
			Values  string `xml:"u64values"`
		} `xml:"distances2"`
	}
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = false // for its DOCTYPE
	if err := d.Decode(&top); err != nil || len(top.Objects) != 1 {
		t.Fatalf("hwloc's XML: %v\n%s", err, text)
	}
	var nodes, sockets, cores, threads [][]int
	var distances []int
	for _, n := range p.Nodes {
		nodes = append(nodes, n.VCPUs)
		for j := range p.Nodes {
			switch {
			case n.Distances != nil:
				distances = append(distances, n.Distances[j])
			case j == n.ID:
				distances = append(distances, 10)
			default:
				distances = append(distances, 20)
			}
		}
	}
	for v := 0; v < p.VCPUs; v++ {
		threads = append(threads, []int{v})
		if v%p.Threads == 0 {
			cores = append(cores, nil)
		}
		cores[len(cores)-1] = append(cores[len(cores)-1], v)
		if v%(p.VCPUs/p.Sockets) == 0 {
			sockets = append(sockets, nil)
		}
		sockets[len(sockets)-1] = append(sockets[len(sockets)-1], v)
	}
	for _, level := range []struct {
		kind string
		want [][]int
	}{{"NUMANode", nodes}, {"Package", sockets}, {"Core", cores}, {"PU", threads}} {
		if got := top.Objects[0].find(level.kind); fmt.Sprint(got) != fmt.Sprint(level.want) {
			t.Errorf("hwloc has %s %v, planned %v", level.kind, got, level.want)
		}
	}
	for _, m := range top.Distances {
		if m.Type != "NUMANode" {
			continue
		}
		if got, want := strings.Fields(m.Values), strings.Fields(strings.Trim(fmt.Sprint(distances), "[]")); !slices.Equal(got, want) {
			t.Errorf("hwloc has distances %v, planned %v", got, want)
		}
		return
	}
	t.Error("hwloc has no distances")
}

// TestVerifyPins boots a VM whose vCPUs are pinned, on two bound nodes and with a region,
// and moves one vCPU: verify names it, and only it.
func TestVerifyPins(t *testing.T) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	if own.Count() < 2 {
		if os.Getenv("CI") != "" {
			t.Fatal("pinning two vCPUs needs two CPUs")
		}
		t.Skip("pinning two vCPUs needs two CPUs")
	}
	file := clusterFile(t, "vms: [{vcpus: 2, memory: 512MiB}]\nregion: {size: 16MiB}\nplacement: {nodes: 2, pin: always, strict: true}\n")
	name := strings.TrimSpace(nm(t, "up", "-f", file, "--no-share").want(t, 0).out)
	t.Cleanup(func() { nm(t, "down", name) })
	rec := record(t, name)
	vm := &rec.Plan.VMs[0]
	if len(vm.Pins) != 2 || slices.Equal(vm.Pins[0], vm.Pins[1]) {
		t.Fatalf("pins %v", vm.Pins)
	}
	nm(t, "verify", name).want(t, 0, "CPUs of vCPU 1", "policy of the memory of node 1", "region in the guest")

	pid, moved := rec.VMs[0].PID, ""
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range tasks {
		if comm, _ := os.ReadFile(dir + "/comm"); strings.HasPrefix(string(comm), "CPU 1/") {
			moved = filepath.Base(dir)
		}
	}
	if out, err := exec.Command("taskset", "-pc", fmt.Sprint(vm.Pins[0][0]), moved).CombinedOutput(); err != nil {
		t.Fatalf("taskset: %v: %s", err, out)
	}
	r := nm(t, "verify", name, "--json").want(t, 3, "1 of ")
	var report verify.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err)
	}
	want := verify.Row{VM: vm.Name, What: "CPUs of vCPU 1", Planned: fmt.Sprint(vm.Pins[1][0]), Found: fmt.Sprint(vm.Pins[0][0]), Status: verify.Differs}
	if d := report.Differences(); len(d) != 1 || d[0] != want {
		t.Errorf("differences %+v, want %+v", d, want)
	}
	if !report.Guest {
		t.Error("the guest was not asked")
	}
}

// TestVerifyAtStart runs a QEMU that leaves out what binds memory to its node: run warns of
// it, is silent with --no-verify, and refuses with --strict.
func TestVerifyAtStart(t *testing.T) {
	real, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	forgetful := filepath.Join(t.TempDir(), "qemu")
	script := "#!/bin/sh\nfor a; do\n\tshift\n\tset -- \"$@\" \"${a%%,host-nodes=0,policy=bind}\"\ndone\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(forgetful, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	file := clusterFile(t, "vms: [{vcpus: 2, memory: 512MiB}]\nplacement: {nodes: 2, pin: always}\nqemu: "+forgetful+"\n")
	const said = "not as planned"
	r := nm(t, "run", "-f", file, "--no-share", "--", "echo", "ran").want(t, 0, "ran",
		said+": vm0: policy of the memory of node 0: planned bind:0, found default")
	if n := strings.Count(r.err, said); n != 2 {
		t.Errorf("%d warnings for two nodes: %s", n, r.err)
	}
	if r = nm(t, "run", "-f", file, "--no-share", "--no-verify", "--", "true").want(t, 0); strings.Contains(r.err, said) {
		t.Error("--no-verify, and there are warnings: ", r.err)
	}
	nm(t, "up", "-f", file, "--no-share", "--strict").want(t, 125, said+", in 2 of ", "policy of the memory of node 0", "--strict")
	if r := nm(t, "ps"); strings.Count(r.out, "\n") > 2 { // the heading, and the shared cluster
		t.Error("the refused cluster is still there: ", r.out)
	}
}
