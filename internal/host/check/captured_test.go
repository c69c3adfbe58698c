package check

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"nearmetal/test/hosttree"
)

// unread matches the files that no row of these groups reads: most of a captured tree.
var unread = regexp.MustCompile(`^(\./)?sys/devices/virtual/infiniband/[^/]+/ports/[^/]+/(gids|gid_attrs/types|pkeys|hw_counters)/`)

// TestCapturedHosts checks trees of a real kernel with an emulated IOMMU and card: initially (s0), with VFs (s1),
// with VFs passed to a user (s2), and with one in a VM.
func TestCapturedHosts(t *testing.T) {
	for name, archive := range map[string]string{
		"s0": "../device/testdata/s0.tar.gz", "s1": "../device/testdata/s1.tar.gz", "s2": "../device/testdata/s2.tar.gz",
		"s2-vfio-inuse": "../device/testdata/s2-vfio-inuse.tar.gz", "igb-sriov": "../../../test/topology/igb-sriov.tar.gz",
	} {
		t.Run(name, func(t *testing.T) {
			dir := hosttree.Dir(t)
			if err := hosttree.Unpack(dir, archive, func(n string) bool { return !unread.MatchString(n) }); err != nil {
				t.Fatal(err)
			}
			r, err := Run(context.Background(), Options{Root: dir, Only: []string{"iommu", "rdma", "cmdline.iommu", "firmware.iommu"}, Command: answering})
			if err != nil {
				t.Fatal(err)
			}
			type row struct {
				ID     string
				Status Status
				Found  string
				Items  []Item `json:",omitempty"`
			}
			var rows []row
			for _, x := range r.Rows {
				rows = append(rows, row{x.ID, x.Status, x.Found, x.Items})
			}
			b, err := json.MarshalIndent(rows, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("captured", name+".json"), string(b)+"\n")
		})
	}
}
