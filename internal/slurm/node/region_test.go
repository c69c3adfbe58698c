package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// Checks that the region's size is set, included in the memory, and compared with the job's GRES in the same way for
// each of its sources.
func TestRegion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nvms: [{count: 2}]\nregion: {size: 256MiB}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	size := func(n uint64) *uint64 { return &n }
	for _, c := range []struct {
		name string
		r    Request
		cpus int
		gres string
		want uint64 // MiB
		err  string
	}{
		{"not counted", Request{VMs: 2, Region: size(64 << 20)}, 4, "", 64, ""},
		{"one VM has none", Request{}, 4, "region:0", 0, ""},
		{"nobody said", Request{VMs: 2}, 4, "", 64, ""},
		{"64 CPUs shared out", Request{VMs: 2}, 64, "", 1024, ""},
		{"64 vCPUs said", Request{VMs: 2, VCPUs: 32}, 4, "", 1024, ""},
		{"the request's", Request{VMs: 2, Region: size(64 << 20)}, 4, "region:1048576", 0, "a region of 64 MiB is not among the job's GRES (1 MiB are): add --gres=region:64M"},
		{"the file's", Request{File: file}, 4, "reg:134217728", 0, "a region of 256 MiB is not among the job's GRES (128 MiB are): add --gres=reg:256M"},
		{"the file's, which the job has", Request{File: file}, 4, "reg:268435456", 256, ""},
		{"the default", Request{VMs: 2}, 4, "region:0", 0, "a region of 64 MiB, the default of these VMs, is not"},
		{"none", Request{File: file, Region: size(0)}, 4, "region:0", 0, ""},
	} {
		spec, err := c.r.Cluster("/")
		if err != nil {
			t.Fatal(err)
		}
		limit, err := ParseRegionLimit(c.gres)
		if err != nil {
			t.Fatal(err)
		}
		err = region(spec, Allocation{Region: limit}, c.cpus)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err != nil || uint64(*spec.Region.Size) != c.want<<20 {
			t.Errorf("%s: %v, %v", c.name, spec.Region.Size, err)
		}
	}
	for _, bad := range []string{"region", ":1", "region:-1", "region:x"} {
		if got, err := ParseRegionLimit(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// Checks that memory which suffices with a region of 64 MiB is too small with the region that the plan makes for 64
// vCPUs.
func TestFitLargeRegion(t *testing.T) {
	c, err := (&Request{VMs: 2, VCPUs: 32, Memory: 1 << 30}).Cluster("/")
	if err != nil {
		t.Fatal(err)
	}
	a := Allocation{Node: "n1", Bytes: 2*(1<<30) + 2*overhead + 64<<20}
	if err := region(c, a, 64); err != nil {
		t.Fatal(err)
	}
	if err := fit(c, a); err == nil || !strings.Contains(err.Error(), "add --mem=3456M") {
		t.Errorf("%v: %s", err, spec.Size(a.Bytes))
	}
}
