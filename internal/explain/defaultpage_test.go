package explain

import (
	"testing"

	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
)

// TestDefaultPageSize: huge pages without a size have the host's default size, here 1 GiB, of which its pools
// consist.
func TestDefaultPageSize(t *testing.T) {
	h, err := topology.Open("../topology/testdata/default-1g.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Explain(open(t, "testdata/default-pages.xml"), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.ID == "memory.pages" && row.Status == check.OK {
			return
		}
	}
	t.Errorf("%+v", r.Rows)
}
