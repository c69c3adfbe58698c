package vsphere

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend/vsphere/vcsim"
	"nearmetal/internal/topology"
)

// TestTopology: a host read live equals its capture and its description.
func TestTopology(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	live, err := Part{}.Topology(context.Background(), s.Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, anonymous := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "h"+Suffix)
		write, err := Part{}.Gather(context.Background(), s.Host, "esx", anonymous)
		if err != nil {
			t.Fatal(err)
		}
		var a, b bytes.Buffer
		if err := write(&a); err != nil {
			t.Fatal(err)
		}
		if write(&b); !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Error("the same capture has other bytes")
		}
		if err := os.WriteFile(name, a.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := topology.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if anonymous {
			if h.Name != "esx" {
				t.Errorf("name %s", h.Name)
			}
			h.Name = live.Name
		}
		if h.Text() != live.Text() {
			t.Errorf("anonymous %v:\n%s\nlive:\n%s", anonymous, h.Text(), live.Text())
		}
	}
	golden(t, "host.txt", live.Text())
	if d := live.Device("0000:3b:00.0"); d == nil || len(d.VFs) != vcsim.VFs || d.Node != 0 || live.Device(d.VFs[3]) == nil || live.Device(d.VFs[3]).PF != d.Address {
		t.Errorf("%+v", d)
	}
}

// TestAnonymous: an anonymous capture contains nothing that names the host, its vCenter or its networks.
func TestAnonymous(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	h := s.Hosts()[0]
	h.Hardware.SystemInfo.SerialNumber, h.Hardware.SystemInfo.BootCommandLine = "SERIAL-1", "boot=secret"
	text := func(anonymous bool) string {
		write, err := Part{}.Gather(context.Background(), s.Host, "esx", anonymous)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		return unpack(t, &b)
	}
	named, plain := text(false), text(true)
	for _, word := range []string{"SERIAL-1", "boot=secret", h.Name, h.Self.Value, "b8:59:9f", "564d-", h.Hardware.SystemInfo.Uuid, "<mac>b"} {
		if !strings.Contains(named, word) {
			t.Errorf("%q is not in the capture at all", word)
		}
		if strings.Contains(plain, word) {
			t.Errorf("%q is in the anonymous capture", word)
		}
	}
	for _, word := range []string{vcsim.Password, vcsim.User} {
		if strings.Contains(named, word) {
			t.Errorf("%q is in a capture", word)
		}
	}
}

// TestBadHost: wrong data from vCenter is a one-line error, or omitted.
func TestBadHost(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	h := s.Hosts()[0]
	was := *h.Hardware
	for _, x := range []struct {
		change func()
		want   string
	}{
		{func() { h.Hardware.CpuInfo.NumCpuThreads = 97 }, "not a machine"},
		{func() { h.Hardware.CpuInfo.NumCpuCores = 0 }, "not a machine"},
		{func() { h.Hardware.CpuPkg = h.Hardware.CpuPkg[:1] }, "48 of 96 CPUs"},
		{func() { h.Hardware.NumaInfo.NumaNode[1].CpuID = h.Hardware.NumaInfo.NumaNode[0].CpuID }, "in two NUMA nodes"},
		{func() { h.Hardware.NumaInfo.NumaNode[1].TypeId = 0 }, "two NUMA nodes have number 0"},
		{func() { h.Hardware.NumaInfo.NumaNode[3].MemoryRangeLength = -1 }, "bytes of"},
		{func() { h.Hardware = nil }, "is it connected?"},
	} {
		hw, numa := was, *was.NumaInfo
		numa.NumaNode = append(numa.NumaNode[:0:0], numa.NumaNode...)
		hw.NumaInfo = &numa
		h.Hardware = &hw
		x.change()
		if _, err := (Part{}).Topology(context.Background(), s.Host); err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	if _, err := (Part{}).Topology(context.Background(), "nowhere"); err == nil || !strings.Contains(err.Error(), `find host "nowhere"`) {
		t.Errorf("%v", err)
	}
}

// FuzzCapture passes archives' files to the reader: it must not panic, nor use unbounded memory.
func FuzzCapture(f *testing.F) {
	f.Add([]byte(`<ObjectContent><obj type="HostSystem">host-1</obj><propSet><name>name</name><val xmlns:XMLSchema-instance="http://www.w3.org/2001/XMLSchema-instance" XMLSchema-instance:type="string">h</val></propSet></ObjectContent>`))
	f.Add([]byte(`<ObjectContent><obj type="HostSystem">h</obj><propSet><name>hardware</name><val xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:type="HostListSummaryQuickStats"></val></propSet></ObjectContent>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Capture
		if readXML(bytes.NewReader(text), &c.content) == nil {
			if h, err := c.Topology(); err == nil && h == nil {
				t.Error("neither a host nor an error")
			}
		}
	})
}
