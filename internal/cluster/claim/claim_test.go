package claim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/test/hosttree"
)

// twoVFs returns a captured host whose card has two VFs, bound to vfio-pci.
func twoVFs(t *testing.T) (root string, h *topology.Host) {
	t.Helper()
	const archive = "../../../test/topology/igb-sriov.tar.gz"
	h, err := topology.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	if err := hosttree.Unpack(root, archive, func(n string) bool {
		return strings.HasPrefix(strings.TrimPrefix(n, "./"), "sys/bus/pci") || strings.Contains(n, "sys/devices/pci")
	}); err != nil {
		t.Fatal(err)
	}
	// The files that nearmetal device bind creates: the claims, owned by the user.
	dir := filepath.Join(root, "run/nearmetal/devices")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, vf := range []string{"0000:41:10.0", "0000:41:10.2"} {
		if err := os.WriteFile(filepath.Join(dir, vf), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, h
}

// taker is a job that reads the host before any other job claims a device.
func taker(t *testing.T, root string) *Claims {
	t.Helper()
	h, err := device.Open(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &Claims{Host: h, taken: Taken{}}
	t.Cleanup(d.Close)
	return d
}

func oneVF(name string) *spec.Cluster {
	return &spec.Cluster{Name: name, VMs: []spec.Group{{Count: 1, VCPUs: 1, Memory: 256 << 20, Devices: []spec.Device{{PF: "eth0", Count: 1}}}}}
}

// Checks that a job which loses its planned VF replans with the remaining ones, and that the job for which none
// remains gets an error with the users of each.
func TestPlanAfterLoss(t *testing.T) {
	root, h := twoVFs(t)
	got := map[string]bool{}
	var first *Claims
	for _, job := range []string{"one", "two"} {
		d := taker(t, root)
		p, err := d.Plan(oneVF(job), []topology.Host{*h}, plan.Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		got[p.VMs[0].Devices[0].Address] = true
		if first == nil {
			first = d
		}
	}
	if len(got) != 2 {
		t.Errorf("two jobs got %v", got)
	}
	d := taker(t, root)
	_, err := d.Plan(oneVF("three"), []topology.Host{*h}, plan.Ledger{})
	if err == nil || !strings.Contains(err.Error(), "is held by cluster one") || !strings.Contains(err.Error(), "is held by cluster two") {
		t.Errorf("%v", err)
	}
	if len(d.claims) != 0 {
		t.Errorf("%d claims of a job that failed", len(d.claims))
	}
	first.Close()
	if _, err := taker(t, root).Plan(oneVF("four"), []topology.Host{*h}, plan.Ledger{}); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// Checks that each VF has one winner when many jobs claim at once.
func TestRaceForVFs(t *testing.T) {
	root, h := twoVFs(t)
	const jobs = 6
	var mu sync.Mutex
	var wg sync.WaitGroup
	winners := map[string][]string{}
	for i := 0; i < jobs; i++ {
		job := fmt.Sprintf("job%d", i)
		d := taker(t, root)
		wg.Add(1)
		go func() {
			defer wg.Done()
			p, err := d.Plan(oneVF(job), []topology.Host{*h}, plan.Ledger{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				a := p.VMs[0].Devices[0].Address
				winners[a] = append(winners[a], job)
			} else if !strings.Contains(err.Error(), "is held by cluster job") {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if len(winners) != 2 || len(winners["0000:41:10.0"]) != 1 || len(winners["0000:41:10.2"]) != 1 {
		t.Errorf("%v", winners)
	}
}
