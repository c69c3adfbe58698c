package cloud

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/verify"
	"nearmetal/test/hosttree"
)

var update = flag.Bool("update", false, "write the golden files")

// flavors are those of the golden reports, as printed by the client.
var flavors = map[string]string{
	"hpc.16": `{"name": "hpc.16", "vcpus": 16, "ram": 65536, "properties": {"hw:cpu_policy": "dedicated", "hw:cpu_sockets": "2",
		"hw:cpu_cores": "8", "hw:cpu_threads": "1", "hw:numa_nodes": "2", "hw:numa_cpus.0": "0-7", "hw:numa_mem.0": "32768",
		"hw:numa_cpus.1": "8-15", "hw:numa_mem.1": "32768", "hw:mem_page_size": "1GB", "pci_passthrough:alias": "mlx5vf:1", "nearmetal:region": "64MiB"}}`,
	"m1.16":       `{"name": "m1.16", "vcpus": 16, "ram": 65536, "disk": 20, "properties": {}}`,
	"m5a.4xlarge": `{"name": "m5a.4xlarge", "vcpus": 16, "ram": 65536}`,
}

func flavorNamed(t *testing.T, name string) *openstack.Flavor {
	t.Helper()
	list, err := openstack.ReadFlavors(strings.NewReader(flavors[name]))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return &list[0]
}

func asText(r *verify.Report) string {
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%s | %s | %s | %s\n", row.What, row.Planned, row.Found, row.Status)
	}
	return b.String()
}

func tree(t *testing.T, machine string, attrs ...string) string {
	t.Helper()
	dir := t.TempDir()
	var lists []string
	for _, a := range attrs {
		lists = append(lists, "testdata/"+a+".attrs")
	}
	if err := hosttree.Write(dir, "testdata/"+machine+".machine", lists...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReports compares reports of described VMs: a flavor whose promises the VM has; one whose promises it lacks; and
// one that promises nothing.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		name, machine, flavor string
		attrs                 []string
	}{
		{"as-promised", "hpc", "hpc.16", []string{"vm", "cloud-init"}},
		{"broken", "default", "hpc.16", []string{"bad", "sockets", "cloud-init"}},
		{"nothing-promised", "default", "m1.16", []string{"vm", "sockets", "drive"}},
		{"another-cloud", "one", "m5a.4xlarge", []string{"vm", "aws"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.machine, c.attrs...)
			i := ReadInstance(context.Background(), dir)
			r, err := Verify(context.Background(), dir, flavorNamed(t, c.flavor), i)
			if err != nil {
				t.Fatal(err)
			}
			head, err := json.Marshal(i)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, c.name+".txt", string(head)+"\n"+asText(r))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

// TestPick: of several flavors the VM's own is selected, if it is known.
func TestPick(t *testing.T) {
	list := []openstack.Flavor{{Name: "a"}, {Name: "b"}}
	if f, err := Pick(list, &Instance{Flavor: "b"}); err != nil || f.Name != "b" {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := Pick(list[:1], &Instance{}); err != nil || f.Name != "a" {
		t.Errorf("%v, %v", f, err)
	}
	for _, i := range []*Instance{{}, {Flavor: "c"}} {
		if f, err := Pick(list, i); err == nil {
			t.Errorf("%+v: %v", i, f)
		}
	}
}

// TestBadFlavors: flavors that do not describe a VM are rejected, with a line that names the fault.
func TestBadFlavors(t *testing.T) {
	dir := tree(t, "default", "vm")
	for want, f := range map[string]openstack.Flavor{
		"are not a VM":          {Name: "x", VCPUs: 0, RAMMiB: 1},
		"and 0 MiB":             {Name: "x", VCPUs: 1},
		"number of nodes":       {Name: "x", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"hw:numa_nodes": "3"}},
		"hw:numa_cpus.0":        {Name: "x", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"hw:numa_cpus.0": "0-9"}},
		"hw:numa_mem.0":         {Name: "x", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"hw:numa_mem.0": "-1"}},
		"nearmetal:region":      {Name: "x", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"nearmetal:region": "64Mb"}},
		"pci_passthrough:alias": {Name: "x", VCPUs: 2, RAMMiB: 64, Specs: map[string]string{"pci_passthrough:alias": "vf:0"}},
	} {
		if _, err := Verify(context.Background(), dir, &f, &Instance{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestHostileMetadata: a cloud's texts are cut and sanitized; missing ones are empty.
func TestHostileMetadata(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if i := ReadInstance(context.Background(), dir); *i != (Instance{}) {
		t.Errorf("%+v", i)
	}
	for _, bad := range []string{"", "[]", `{"ds": 7}`, `{"v1": {"platform": 1}}`, strings.Repeat("[", 1<<16)} {
		put("run/cloud-init/instance-data.json", bad)
		if i := ReadInstance(context.Background(), dir); *i != (Instance{}) {
			t.Errorf("%.40q: %+v", bad, i)
		}
	}
	put("run/cloud-init/instance-data.json", `{"ds": {"ec2_metadata": {"instance-type": "a\u001b[31m\nb`+strings.Repeat("x", 1000)+`"}}}`)
	if i := ReadInstance(context.Background(), dir); len(i.Flavor) > 255 || strings.ContainsAny(i.Flavor, "\x1b\n") || !strings.HasPrefix(i.Flavor, "a?[31m?b") {
		t.Errorf("%q", i.Flavor)
	}
}

// serve answers each connection to a metadata service with a text.
func serve(t *testing.T, answer func(path string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				f := strings.Fields(string(b[:n]))
				if len(f) > 1 {
					c.Write([]byte(answer(f[1])))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestService(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nX: y\r\n\r\n"
	a := serve(t, func(path string) string {
		switch path {
		case "/latest/meta-data/instance-type":
			return ok + "hpc.16"
		case "/openstack/latest/meta_data.json":
			return ok + `{"name": "n0", "uuid": "u"}`
		}
		return "HTTP/1.0 404 no\r\n\r\n"
	})
	i := &Instance{}
	i.fromService(context.Background(), a)
	if want := (Instance{Cloud: "openstack", Name: "n0", UUID: "u", Flavor: "hpc.16", Source: "the metadata service"}); *i != want {
		t.Errorf("%+v, want %+v", *i, want)
	}
	for name, answer := range map[string]string{
		"404": "HTTP/1.1 404 Not Found\r\n\r\nhpc", "401": "HTTP/1.1 401 token\r\n\r\n", "no HTTP": "SSH-2.0-OpenSSH\r\n\r\nx",
		"no end": "HTTP/1.1 200 OK\r\n", "nothing": "", "much": ok + strings.Repeat("x", answerMax+1),
	} {
		i := &Instance{}
		if i.fromService(context.Background(), serve(t, func(string) string { return answer })); *i != (Instance{}) {
			t.Errorf("%s: %.80v", name, *i)
		}
	}
}

// TestServiceSilent: the wait for a service that accepts a connection and does not answer is bounded.
func TestServiceSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	i := &Instance{}
	if i.fromService(ctx, l.Addr().String()); *i != (Instance{}) {
		t.Errorf("%+v", i)
	}
}
