package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/site"
	"nearmetal/internal/spec"
)

func TestParseRequest(t *testing.T) {
	r, err := ParseRequest("1 vm=1 file=/home/u/a%20b.yaml vms=2 vcpus=3 memory=1073741824 region=0 policy=spread pages=2MiB keep=step")
	if err != nil {
		t.Fatal(err)
	}
	if r.File != "/home/u/a b.yaml" || r.VMs != 2 || r.VCPUs != 3 || r.Memory != 1<<30 || r.Region == nil || *r.Region != 0 ||
		r.Policy != "spread" || r.Pages != "2MiB" || !r.KeepForStep || r.WithoutValues {
		t.Errorf("%+v", r)
	}
	if r, err := ParseRequest("1 vm=1"); err != nil || !r.WithoutValues {
		t.Errorf("%+v, %v", r, err)
	}
}

// Tests the cases that are also tested with the parser in C. A case of "yes" is parsed into exactly what it states.
func TestRequestCases(t *testing.T) {
	table, err := os.ReadFile("../../../slurm/testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, line := range strings.Split(string(table), "\n") {
		want, text, _ := strings.Cut(line, " ")
		if line == "" || line[0] == '#' {
			continue
		}
		cases++
		r, err := ParseRequest(expand(t, text))
		if want != "yes" && want != "no" || (err == nil) != (want == "yes") {
			t.Errorf("%s: %+.200v, %v", line, r, err)
		}
	}
	if cases < 80 {
		t.Errorf("%d cases", cases)
	}
}

// expand expands the notation of slurm/testdata/requests.txt.
func expand(t *testing.T, text string) string {
	t.Helper()
	return regexp.MustCompile(`\\x[0-9A-F]{2}|\{[^*]+\*[0-9]+\}`).ReplaceAllStringFunc(text, func(s string) string {
		if digits, ok := strings.CutPrefix(s, `\x`); ok {
			n, _ := strconv.ParseUint(digits, 16, 8)
			return string([]byte{byte(n)})
		}
		what, times, _ := strings.Cut(strings.Trim(s, "{}"), "*")
		n, err := strconv.Atoi(times)
		if err != nil {
			t.Fatal(s, err)
		}
		return strings.Repeat(what, n)
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add("1 vm=1 file=/home/u/a%20b.yaml vms=2 vcpus=3 memory=1073741824 region=0 policy=spread keep=step")
	f.Add("1 root=%2f%")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequest(text)
		if err == nil && r.File == "" {
			r.Cluster("/") // must not panic
		}
	})
}

func TestRequestCluster(t *testing.T) {
	region := uint64(64 << 20)
	r := Request{VMs: 2, VCPUs: 1, Memory: 512 << 20, Region: &region, Policy: "spread", Root: "/srv/root"}
	c, err := r.Cluster(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := c.VMs[0]
	if g.Count != 2 || g.VCPUs != 1 || g.Memory != 512<<20 || *c.Region.Size != 64<<20 || c.Placement.Policy != "spread" || c.Root != "/srv/root" {
		t.Errorf("%+v", c)
	}
	bad := uint64(3 << 20)
	if _, err := (&Request{Region: &bad}).Cluster("/"); err == nil {
		t.Error("a region of 3 MiB was taken")
	}
}

// Checks that a job uses config.yaml for the contents of its VMs if neither its file nor srun sets them, and never
// for what follows from the job.
func TestRequestDefaults(t *testing.T) {
	dir := t.TempDir()
	old := site.Etc
	site.Etc = filepath.Join(dir, "etc")
	t.Cleanup(func() { site.Etc = old })
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "user"))
	put := func(path, text string) string {
		t.Helper()
		path = filepath.Join(dir, path)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("etc/config.yaml", "fabric: none\nroot: /srv/site\nisolation: standard\nshares: [{path: /data, mode: ro}]\nenv: {A: site, B: site}\n"+
		"vms: [{count: 3, vcpus: 5, memory: 1GiB}]\naccel: kvm\nregion: {size: 128MiB}\nplacement: {pages: 1GiB, policy: spread}\nbackend: other\n")
	put("user/nearmetal/config.yaml", "env: {A: user}\nkernelArgs: [quiet]\n")
	work := t.TempDir()
	c, err := (&Request{VMs: 2}).Cluster(work)
	if err != nil {
		t.Fatal(err)
	}
	if c.Fabric != "none" || c.Root != "/srv/site" || c.Isolation != "standard" || c.Env["A"] != "user" || c.Env["B"] != "site" || len(c.KernelArgs) != 1 {
		t.Errorf("%+v", c)
	}
	if len(c.Shares) != 2 || c.Shares[0].Path == c.Shares[1].Path || c.Shares[0].Path != "/data" && c.Shares[1].Path != "/data" {
		t.Errorf("shares %+v", c.Shares)
	}
	if len(c.VMs) != 1 || c.VMs[0].Count != 2 || c.VMs[0].VCPUs != 0 || c.VMs[0].Memory != 0 || c.Accel != "" || c.Region.Size != nil ||
		c.Placement.Pages != "" || c.Placement.Policy != "" || c.Backend != "" {
		t.Errorf("the job's own: %+v", c)
	}
	file := put("job.yaml", "root: host\nfabric: auto\nshares: []\n")
	if c, err = (&Request{File: file}).Cluster(work); err != nil || c.Root != "host" || c.Fabric != "auto" || c.Isolation != "standard" || len(c.Shares) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
	hosts := put("hosts.yaml", "placement: {hosts: [n1, n2]}\n")
	if _, err := (&Request{File: hosts}).Cluster(work); err == nil || !strings.Contains(err.Error(), "placement.hosts") {
		t.Errorf("a job with hosts of its own: %v", err)
	}
	if c, err = (&Request{Root: "/srv/mine"}).Cluster(work); err != nil || c.Root != "/srv/mine" {
		t.Errorf("%v, %+v", err, c)
	}
	put("etc/config.yaml", "fabric: perhaps\n")
	if _, err := (&Request{}).Cluster(work); err == nil || !strings.Contains(err.Error(), "etc/config.yaml:1:9") {
		t.Errorf("a fault in the site's file: %v", err)
	}
}

// Checks that another backend in the cluster file is an error, because a job's VMs are processes of the job, and that
// this backend is not contacted.
func TestRequestBackend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	for text, ok := range map[string]bool{"backend: qemu\n": true, "vms: [{count: 2}]\n": true, "backend: libvirt:///system\n": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Request{File: file}).Cluster("/")
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "backend: libvirt: a job's VMs are processes of the job, which qemu alone makes") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFit(t *testing.T) {
	size := uint64(64 << 20)
	r := Request{VMs: 2, Region: &size}
	c, err := r.Cluster("/")
	if err != nil {
		t.Fatal(err)
	}
	// 2 × 192 MiB for QEMU and 64 MiB of region of 1,000 MiB leave 552.
	if err := fit(c, Allocation{Node: "n1", Bytes: 1000 << 20}); err != nil || c.VMs[0].Memory != 256<<20 {
		t.Errorf("%v, %v", c.VMs[0].Memory, err)
	}
	c, _ = r.Cluster("/")
	if err := fit(c, Allocation{Node: "n1", Bytes: 500 << 20}); err == nil || !strings.Contains(err.Error(), "add --mem=832M") {
		t.Error(err)
	}
	c, _ = (&Request{Memory: 1 << 30}).Cluster("/")
	if err := fit(c, Allocation{Node: "n1", Bytes: 1 << 30}); err == nil || !strings.Contains(err.Error(), "add --mem=1216M") {
		t.Error(err)
	}
}

func TestHostPrefix(t *testing.T) {
	for node, want := range map[string]string{"n1": "n1-", "Node_07.cluster": "node-07-cluster-", "7": "n7-", "": "n-"} {
		if got := spec.HostPrefix(node); got != want {
			t.Errorf("%q: %q, want %q", node, got, want)
		}
	}
}
