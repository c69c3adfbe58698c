package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/region"
)

const insideOutput = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0: 5000      50    0    0    0     0          0         0     700       7    0    0    0     0       0          0
 ib0.8001:12345678901 50    0    0    0     0          0         0     1       7    0    0    0     0       0          0
/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:250
/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:1000
`

func TestReadInside(t *testing.T) {
	v := VM{}
	v.ReadInside([]byte(insideOutput))
	want := "[{eth0 false 5000 700} {ib0.8001 false 12345678901 1} {mlx5_0/1 true 1000 4000}]"
	if got := fmt.Sprint(v.Interfaces); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A VM may print anything.
	v.ReadInside([]byte("\x1b[2J: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\neth0: x\neth1: x 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"/sys/class/infiniband/../ports/1/counters/port_rcv_data:99999999999999999999999\n/sys/class/infiniband/m/x:1\n" + strings.Repeat("x", 100000)))
	if got := fmt.Sprint(v.Interfaces); got != "[{eth1 false 0 0}]" {
		t.Errorf("%s", got)
	}
	many := ""
	for i := range 200 {
		many += fmt.Sprintf("e%d: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", i)
	}
	if v.ReadInside([]byte(many)); len(v.Interfaces) != insideMost {
		t.Errorf("%d interfaces", len(v.Interfaces))
	}
}

// A VM's region is found among the open files of its process.
func TestReadRegion(t *testing.T) {
	r, err := region.Create(region.Options{SizeBytes: 1 << 20, HostNode: -1, Dir: t.TempDir()})
	if err != nil {
		r, err = region.Create(region.Options{SizeBytes: 1 << 20, HostNode: -1})
	}
	if err != nil {
		t.Fatal(err)
	}
	v := VM{}
	if v.ReadRegion("/", os.Getpid()); v.Region == nil || v.Region.Bytes != 1<<20 || v.Region.Ranks != 0 || v.Region.Lines == nil {
		t.Errorf("%+v", v.Region)
	}
	r.Close()
	other := VM{}
	if other.ReadRegion("/", os.Getpid()); other.Region != nil {
		t.Errorf("it is closed: %+v", other.Region)
	}
	// Another file with a similar name.
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "proc/7/fd"), 0o755)
	os.Symlink("/dev/shm/#1 (deleted)", filepath.Join(root, "proc/7/fd/3"))
	if other.ReadRegion(root, 7); other.Region != nil {
		t.Errorf("no region: %+v", other.Region)
	}
}

func TestSinceOfChannels(t *testing.T) {
	lines := func(n uint64) *Region { return &Region{Use: region.Use{Ranks: 2, Lines: &n}} }
	then := VM{Region: lines(100), Interfaces: []Interface{{"eth0", false, 10, 0}, {"mlx5_0/1", true, 0, 50}}, Functions: []Function{{"0000:41:10.0", 5, 6}}}
	now := VM{Region: lines(300), Interfaces: []Interface{{"eth0", false, 30, 8}, {"mlx5_0/1", true, 4, 70}}, Functions: []Function{{"0000:41:10.0", 9, 26}}}
	r := now.Since(&then, 2*time.Second)
	if r.Lines != 100 || r.NetIn != 10 || r.NetOut != 4 || r.RDMAIn != 2 || r.RDMAOut != 10 || r.FunctionsIn != 2 || r.FunctionsOut != 10 {
		t.Errorf("%+v", r)
	}
	// Ranks that ended took their rings with them, and without interfaces no rate is known.
	if r := then.Since(&now, time.Second); r.Lines != -1 || r.NetIn != -1 {
		t.Errorf("%+v", r)
	}
	if r := (&VM{}).Since(&then, time.Second); r.Lines != -1 || r.NetIn != -1 || r.RDMAOut != -1 || r.FunctionsIn != -1 {
		t.Errorf("%+v", r)
	}
}
