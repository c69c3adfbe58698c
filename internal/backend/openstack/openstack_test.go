package openstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/test/golden"
	"nearmetal/test/plans"
)

// made is the request for the plan of one of package plan's cluster files.
type made struct {
	name    string
	request *Request
}

// requests makes the requests for every plan that package plan keeps a golden file of.
func requests(t *testing.T) []made {
	t.Helper()
	var list []made
	for _, file := range plans.Files(t, "../../plan") {
		p, c := plans.Make(t, file)
		r, err := Make(p, c)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, made{plans.Name(file), r})
	}
	return list
}

// TestGolden compares the request for each plan, as commands and for OpenTofu.
func TestGolden(t *testing.T) {
	for _, m := range requests(t) {
		t.Run(m.name, func(t *testing.T) {
			var script, tofu bytes.Buffer
			if err := m.request.Commands(&script); err != nil {
				t.Fatal(err)
			}
			if err := m.request.Tofu(&tofu); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/golden/"+m.name+".sh", script.String())
			golden.Check(t, "testdata/golden/"+m.name+".tf.json", tofu.String())
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(script.String())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("the script: %v: %s", err, out)
			}
		})
	}
}

// TestCommandsRun: the script passes to the client exactly the request, including words of all kinds.
func TestCommandsRun(t *testing.T) {
	r := &Request{
		Cluster: "c", Flavors: []Flavor{{Name: "it's $HOME", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"a:b": "1 `id` \"2\""}}},
		Image: map[string]string{"hw_machine_type": "q35"}, Group: &Group{Name: "g", Policy: "affinity"},
		Servers: []Server{{Name: "c-vm0", Flavor: "it's $HOME", Ports: []Port{{Name: "p0", VNIC: "direct", PF: "mlx5_0"}}}},
	}
	var script bytes.Buffer
	if err := r.Commands(&script); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	client := "#!/bin/sh\nfor w; do printf '<%s>' \"$w\"; done >>" + dir + "/log; echo >>" + dir + "/log; echo ID\n"
	if err := os.WriteFile(dir+"/openstack", []byte(client), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-s")
	cmd.Stdin = &script
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NETWORK=net", "IMAGE=im", "VFNET=vf")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	log, _ := os.ReadFile(dir + "/log")
	want := "<flavor><create><--vcpus><2><--ram><64><--disk><20><--property><a:b=1 `id` \"2\"><it's $HOME>\n" +
		"<image><set><--property><hw_machine_type=q35><im>\n" +
		"<server><group><create><-f><value><-c><id><--policy><affinity><g>\n" +
		"<port><create><--network><vf><--vnic-type><direct><p0>\n" +
		"<server><create><--flavor><it's $HOME><--image><im><--network><net><--port><p0><--hint><group=ID><c-vm0>\n"
	if string(log) != want {
		t.Errorf("the client was asked\n%swant\n%s", log, want)
	}
}

// TestMatchOwn: a flavor made for a plan fits it, and each property removed from it is named.
func TestMatchOwn(t *testing.T) {
	for _, m := range requests(t) {
		for _, want := range m.request.Flavors {
			if fits := Match(want, []Flavor{want}); !fits[0].Fits || fits[0].Image != nil || fits[0].Without != nil || fits[0].Over != nil {
				t.Errorf("%s: its own flavor: %+v", m.name, fits[0])
			}
			for key := range want.Specs {
				less := want
				less.Specs = map[string]string{}
				for k, v := range want.Specs {
					if k != key {
						less.Specs[k] = v
					}
				}
				f := Match(want, []Flavor{less})[0]
				named := f.Image[fromImage[key]] != "" || strings.Contains(strings.Join(f.Lacks, "\n"), key+"=")
				named = named || key == RegionSpec && f.Fits && len(f.Without) == 1
				if !named && !same(key, want.Specs[key], "", want, less) {
					t.Errorf("%s: without %s: %+v", m.name, key, f)
				}
			}
		}
	}
}

// TestMatch: the flavors of a cloud are sorted, with the properties that each lacks.
func TestMatch(t *testing.T) {
	f, err := os.Open("testdata/flavors.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	have, err := ReadFlavors(f)
	if err != nil {
		t.Fatal(err)
	}
	want := Flavor{VCPUs: 16, RAMMiB: 65536, Specs: map[string]string{
		"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "prefer", "hw:numa_nodes": "2", "hw:mem_page_size": "1GB",
		"hw:numa_cpus.0": "0-7", "hw:numa_cpus.1": "8-15", "hw:numa_mem.0": "32768", "hw:numa_mem.1": "32768",
		"hw:cpu_sockets": "2", "hw:cpu_cores": "8", "hw:cpu_threads": "1",
	}}
	text, err := json.MarshalIndent(Match(want, have), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/golden/match.json", string(text)+"\n")
}

// TestRefused covers plans that no flavor can express.
func TestRefused(t *testing.T) {
	c := &spec.Cluster{}
	spec.Defaults(c)
	for _, x := range []struct {
		vm   plan.VM
		want string
	}{
		{plan.VM{Name: "a", MemoryBytes: 1<<20 + 1}, "VM a: memory of 1048577 bytes: a flavor has whole MiB"},
		{plan.VM{Name: "a", MemoryBytes: 1 << 30, Nodes: []plan.Node{{VCPUs: []int{0}}}}, "VM a: node 0 has vCPUs and no memory"},
		{plan.VM{Name: "a", MemoryBytes: 1 << 30, Nodes: []plan.Node{{MemoryBytes: 1 << 30}}}, "VM a: all of its memory is on nodes without vCPUs"},
	} {
		if _, err := Make(&plan.Plan{VMs: []plan.VM{x.vm}}, c); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want %q", err, x.want)
		}
	}
}

func TestReadFlavors(t *testing.T) {
	for text, want := range map[string]string{
		`[`:                                 "not what openstack flavor list",
		`{}`:                                "not what openstack flavor list",
		`[{"Name": "a"}]`:                   `flavor 1: "a": vCPUs or RAM are missing`,
		`[{"Name": 3}]`:                     "flavor 1: it has no name",
		`[{"Name":"a","VCPUs":-1,"RAM":1}]`: `flavor 1: "a": vCPUs or RAM`,
		`[{"Name":"a","VCPUs":1,"RAM":1,"Properties":[1]}]`: "properties of no kind",
	} {
		if _, err := ReadFlavors(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{
		`[{"Name": "m", "VCPUs": 4, "RAM": 2048, "Properties": {"hw:cpu_policy": "dedicated", "x": "1"}}]`,
		`[{"Name": "m", "VCPUs": "4", "RAM": "2048", "Properties": "hw:cpu_policy='dedicated', x='1'"}]`,
		`{"flavors": [{"name": "m", "vcpus": 4, "ram": 2048, "extra_specs": {"hw:cpu_policy": "dedicated", "x": "1"}}]}`,
	} {
		list, err := ReadFlavors(strings.NewReader(text))
		if err != nil || len(list) != 1 || list[0].VCPUs != 4 || list[0].RAMMiB != 2048 || list[0].Specs["hw:cpu_policy"] != "dedicated" || list[0].Specs["x"] != "1" {
			t.Errorf("%s: %+v, %v", text, list, err)
		}
	}
}

// FuzzReadFlavors: reading and comparing a file of flavors with any content ends without a panic.
func FuzzReadFlavors(f *testing.F) {
	for _, seed := range []string{`[{"Name": "m", "VCPUs": 4, "RAM": 2048, "Properties": "hw:cpu_policy='dedicated', x='1'"}]`,
		`{"flavors": [{"name": "m", "vcpus": 4, "ram": 2048, "extra_specs": {"hw:mem_page_size": "2MB", "hw:numa_nodes": "2"}}]}`} {
		f.Add([]byte(seed))
	}
	want := Flavor{VCPUs: 4, RAMMiB: 4096, Specs: map[string]string{"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-1", "hw:numa_mem.0": "2048", "hw:mem_page_size": "1GB"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ReadFlavors(bytes.NewReader(text))
		if err != nil {
			return
		}
		if fits := Match(want, list); len(fits) != len(list) {
			t.Errorf("%d answers for %d flavors", len(fits), len(list))
		}
		for _, have := range list {
			Match(have, []Flavor{want})
		}
	})
}

// TestSoleLack: if only one property of a plan excludes every flavor, it is named.
func TestSoleLack(t *testing.T) {
	for _, c := range []struct {
		lacks [][]string
		want  string
	}{
		{nil, ""},
		{[][]string{{"a=1 is not there: x"}, {"b", "c"}}, ": f0 lacks only this: a=1 is not there: x"},
		{[][]string{{"a=1 is not there: x", "b"}, {"c", "a=1 is not there: x"}}, ": every flavor lacks a=1"},
		{[][]string{{"a", "b"}, {"b", "a"}}, ""},
		{[][]string{{"a", "b"}, {"c", "d"}}, ""},
	} {
		var flavors []Fit
		for i, l := range c.lacks {
			flavors = append(flavors, Fit{Flavor: fmt.Sprint("f", i), Lacks: l})
		}
		if got := SoleLack(flavors); got != c.want {
			t.Errorf("%q: %q, want %q", c.lacks, got, c.want)
		}
	}
}
