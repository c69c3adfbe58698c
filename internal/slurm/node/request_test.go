package node

import (
	"strings"
	"testing"
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
	for _, bad := range []string{"", "2 vm=1", "1 vm=2", "1 vm", "1 vms=-1", "1 vms=1 vms=1", "1 file=a", "1 file=/a%0", "1 file=/a%00",
		"1 file=/a%zz", "1 what=1", "1 memory=1e9", "1 pages=auto", "1 pages=3MiB", "1 " + strings.Repeat("x", 5000)} {
		if r, err := ParseRequest(bad); err == nil {
			t.Errorf("%.60q gives %+v", bad, r)
		}
	}
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

func TestFit(t *testing.T) {
	r := Request{VMs: 2}
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
		if got := hostPrefix(node); got != want {
			t.Errorf("%q: %q, want %q", node, got, want)
		}
	}
}
