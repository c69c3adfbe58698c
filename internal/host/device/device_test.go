package device

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/host/change"
)

var update = flag.Bool("update", false, "write the golden files anew")

var ctx = context.Background()

func open(t testing.TB, root string) *Host {
	t.Helper()
	h, err := Open(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wantErr fails unless err is one line that contains the words.
func wantErr(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with %q", err, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want %q in it", err, w)
		}
	}
}

// TestList compares the functions of each captured host with files that a person has reviewed.
func TestList(t *testing.T) {
	for _, s := range []string{"s0", "s1", "s2", "s2-vfio-inuse"} {
		list, err := open(t, capture(t, s)).List(false)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.MarshalIndent(list, "", "  ")
		file := filepath.Join("testdata", s+".json")
		if *update {
			os.WriteFile(file, append(got, '\n'), 0o644)
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != string(got)+"\n" {
			t.Errorf("%s (go test -update writes it anew): %v\n%s", file, err, got)
		}
	}
}

func TestFind(t *testing.T) {
	h := open(t, capture(t, "s2"))
	for _, n := range []string{"0000:41:00.0", "41:00.0", "eth0"} {
		if f, err := h.Find(n); err != nil || f.Address != thePF {
			t.Errorf("%s: %v, %v", n, f, err)
		}
	}
	for n, want := range map[string]string{
		"41:00.1": "there is no device", "lo": "there is no device", "": "not a device's name",
		"../../../etc": "not a device's name", "a/b": "not a device's name", "eth0\n": "not a device's name",
		"0000:41:00.0/../x": "not a device's name", "..": "not a device's name",
		strings.Repeat("x", 5000): "not a device's name",
	} {
		_, err := h.Find(n)
		wantErr(t, err, want)
	}
}

// TestWhole: a VF is made, given to a user, returned and removed; the host is then restored.
func TestWhole(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		root := capture(t, "s0")
		k := emulate(t, root)
		k.delay = delay
		h := open(t, root)
		before := k.state()
		if err := h.EnableVFs(ctx, thePF, 2); err != nil {
			t.Fatal(err)
		}
		pf, err := h.Find(thePF)
		if err != nil || len(pf.VFs) != 2 || pf.VFs[0] != "0000:41:10.0" || pf.VFs[1] != "0000:41:10.2" {
			t.Fatalf("%+v, %v", pf, err)
		}
		vf := pf.VFs[1]
		if f, _ := h.Find(vf); f.Driver != "" || f.Group != 9 || f.PF != thePF || f.Index != 1 || f.Node != 1 || f.Link != "ethernet" {
			t.Errorf("%+v", f)
		}
		if err := h.Bind(ctx, vf, os.Getuid(), os.Getgid()); err != nil {
			t.Fatal(err)
		}
		f, _ := h.Find(vf)
		if f.Driver != vfioDriver || f.VFIO != "/dev/vfio/9" || f.Owner != userName(os.Getuid()) {
			t.Errorf("%+v", f)
		}
		c, err := h.Claim(vf, "demo")
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Release(vf)
		wantErr(t, err, "in use by cluster demo")
		_, err = h.DisableVFs(ctx, thePF)
		wantErr(t, err, vf, "in use by cluster demo")
		c.Close()
		// A cluster of root claims a function before it binds it, and another process's claim is respected.
		if c, err = h.Claim(pf.VFs[0], "demo"); err != nil {
			t.Fatal(err)
		}
		if err := h.mayBind(h.read(pf.VFs[0])); err != nil {
			t.Error(err)
		}
		os.WriteFile(h.claimPath(pf.VFs[0]), []byte(`{"cluster":"demo","pid":1}`), 0o600)
		wantErr(t, h.mayBind(h.read(pf.VFs[0])), "in use by cluster demo")
		c.Close()
		os.Remove(h.claimPath(pf.VFs[0]))
		if did, err := h.Release(vf); err != nil || len(did) != 3 {
			t.Errorf("%v, %v", did, err)
		}
		if f, _ := h.Find(vf); f.Driver != "" {
			t.Errorf("still bound: %+v", f)
		}
		if err := h.Bind(ctx, pf.VFs[0], os.Getuid(), os.Getgid()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.DisableVFs(ctx, thePF); err != nil {
			t.Fatal(err)
		}
		k.settle()
		if after := k.state(); after != before {
			t.Errorf("before\n%safter\n%s", before, after)
		}
		if list, _ := change.List(h.State()); len(list) != 0 {
			t.Errorf("left in the journals: %+v", list)
		}
	}
}

func TestRefusals(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	const vf = "0000:41:10.0"
	before := k.state()
	bind := func(at string) error { return h.Bind(ctx, at, os.Getuid(), os.Getgid()) }

	wantErr(t, bind(thePF), "has 2 VFs")
	wantErr(t, bind("0000:00:1f.2"), "cannot be isolated", "0000:00:1f.3")
	wantErr(t, bind("0000:00:00.0"), "is a bridge")
	wantErr(t, h.EnableVFs(ctx, vf, 1), "itself a VF", thePF)
	wantErr(t, h.EnableVFs(ctx, "0000:00:02.0", 1), "no SR-IOV")
	wantErr(t, h.EnableVFs(ctx, thePF, 8), "can have 7 VFs, not 8")
	wantErr(t, h.EnableVFs(ctx, thePF, 0), "at least one")
	wantErr(t, h.EnableVFs(ctx, thePF, 3), "has 2 VFs", "disable-vfs")

	// The default route uses the VF's interface.
	k.bind(vf, "igbvf")
	k.put(slot+"/"+vf+"/net/eth7/address", "02:00:00:00:00:01\n")
	k.put("/proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+
		"eth7\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	wantErr(t, bind(vf), "in use by this host", "default route", "eth7")
	_, err := h.DisableVFs(ctx, thePF)
	wantErr(t, err, "default route")
	os.Remove(root + "/proc/net/route")
	k.put("/proc/net/ipv6_route", strings.Repeat("0", 32)+" 00 "+strings.Repeat("0", 32)+" 00 "+strings.Repeat("0", 31)+"1 00000400 00000001 00000000 00000003 eth7\n")
	wantErr(t, bind(vf), "default route")
	os.Remove(root + "/proc/net/ipv6_route")
	k.link("../../../../../virtual/net/br0", slot+"/"+vf+"/net/eth7/master")
	wantErr(t, bind(vf), "eth7 belongs to br0")
	os.RemoveAll(root + slot + "/" + vf + "/net")
	k.unbind(vf)

	// If another driver binds before vfio-pci, nothing is left half bound.
	k.stolen = "igbvf"
	wantErr(t, bind(vf), "driver igbvf took it first")
	k.settle()
	k.stolen = ""
	// No IOMMU.
	os.Remove(root + slot + "/" + vf + "/iommu_group")
	wantErr(t, bind(vf), "no IOMMU group", "intel_iommu=on")
	k.link("../../../../kernel/iommu_groups/8", slot+"/"+vf+"/iommu_group")
	if after := k.state(); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}

	inuse := open(t, capture(t, "s2-vfio-inuse"))
	wantErr(t, inuse.Bind(ctx, vf, os.Getuid(), os.Getgid()), "in use by")
	_, err = inuse.Release(vf)
	wantErr(t, err, "in use by")
	_, err = inuse.DisableVFs(ctx, thePF)
	wantErr(t, err, "in use by")
}

// TestVanish: the card loses its VFs, or is unplugged, while one is bound.
func TestVanish(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	k.mu.Lock()
	k.before = func(_ int, path, _ string) {
		if strings.HasSuffix(path, "driver_override") {
			k.vfs(0)
		}
	}
	k.mu.Unlock()
	wantErr(t, h.Bind(ctx, "0000:41:10.0", os.Getuid(), os.Getgid()), "0000:41:10.0", "vanished")
	wantErr(t, h.Bind(ctx, "0000:41:10.0", os.Getuid(), os.Getgid()), "0000:41:10.0", "vanished")
	if list, _ := change.List(h.State()); len(list) != 0 {
		t.Errorf("left in the journals: %+v", list)
	}
}

// TestLostVF: if a VF never appears, enable-vfs ends within its bound and leaves no VF.
func TestLostVF(t *testing.T) {
	root := capture(t, "s0")
	k := emulate(t, root)
	k.lost = 0
	before := k.state()
	h := open(t, root)
	h.wait = 300 * time.Millisecond
	wantErr(t, h.EnableVFs(ctx, thePF, 2), "VF 0", "timed out after")
	k.settle()
	if after := k.state(); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

// TestUntilLooksOnceMore: an event that occurred while this process was suspended is detected, although the time is
// over.
func TestUntilLooksOnceMore(t *testing.T) {
	h := &Host{wait: time.Millisecond}
	asked := 0
	if err := h.until(ctx, "it", func() (bool, error) {
		asked++
		for began := time.Now(); asked == 1 && time.Since(began) <= h.wait; {
			time.Sleep(h.wait)
		}
		return asked == 2, nil
	}); err != nil {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// TestClaimRace: of two processes that want one VF, one gets it.
func TestClaimRace(t *testing.T) {
	h := open(t, capture(t, "s2"))
	const vf = "0000:41:10.0"
	if err := h.makeClaimFile(vf, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	type got struct {
		c   *Claim
		err error
	}
	results := make(chan got)
	for i := 0; i < 8; i++ {
		go func() {
			c, err := h.Claim(vf, fmt.Sprint("job", i))
			results <- got{c, err}
		}()
	}
	var winner *Claim
	for i := 0; i < 8; i++ {
		switch r := <-results; {
		case r.err == nil && winner != nil:
			t.Error("two got it")
		case r.err == nil:
			winner = r.c
		default:
			wantErr(t, r.err, vf, "is in use by")
		}
	}
	if winner == nil {
		t.Fatal("nobody got it")
	}
	_, err := h.Claim(vf, "late")
	wantErr(t, err, "is in use by cluster job")
	winner.Close()
	if c, err := h.Claim(vf, "next"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	_, err = h.Claim("../../etc/passwd", "x")
	wantErr(t, err, "is not a PCI address")
}

// TestHostileClaim: the content of a claim's file is written by another user, and may be anything.
func TestHostileClaim(t *testing.T) {
	h := open(t, capture(t, "s2"))
	const vf = "0000:41:10.0"
	for _, text := range []string{"", "null", "[]", `{"cluster":"a\nb\u001b[31m"}`, strings.Repeat("x", 1<<20), `{"cluster":"` + strings.Repeat("y", 300) + `"}`} {
		c, err := h.Claim(vf, "demo")
		if os.Geteuid() != 0 && err != nil {
			h.makeClaimFile(vf, os.Getuid(), os.Getgid())
			c, err = h.Claim(vf, "demo")
		}
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(h.claimPath(vf), []byte(text), 0o600)
		if who := h.claimant(vf); who == "" || strings.ContainsAny(who, "\n\x1b") || len(who) > 120 {
			t.Errorf("%.60q: %q", text, who)
		}
		c.Close()
	}
	os.Remove(h.claimPath(vf))
	os.Symlink("/etc/passwd", h.claimPath(vf))
	if _, err := h.Claim(vf, "x"); err == nil {
		t.Error("a link was followed")
	}
}

// TestStable: addresses are the same each time, differ between VFs, and are local and unicast.
func TestStable(t *testing.T) {
	h := open(t, capture(t, "s1"))
	seen := map[string]bool{}
	for i := 0; i < 128; i++ {
		m, g := h.StableMAC(thePF, i), h.StableGUID("node", thePF, i)
		if m[0]&3 != 2 || g[0]&3 != 2 || len(m) != 6 || len(g) != 8 || seen[m.String()] || seen[g.String()] {
			t.Errorf("VF %d: %v %v", i, m, g)
		}
		seen[m.String()], seen[g.String()] = true, true
		if h.StableMAC(thePF, i).String() != m.String() || h.StableGUID("port", thePF, i).String() == g.String() {
			t.Errorf("VF %d: not stable", i)
		}
	}
}

// TestSet: attributes that the driver provides as files (mlx5 of MLNX_OFED) are set, and undone by Release.
func TestSet(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	const vf = "0000:41:10.2"
	dir := slot + "/" + thePF + "/sriov/1/"
	for n, v := range map[string]string{"mac": "00:00:00:00:00:00", "vlan": "0", "trust": "OFF", "spoofcheck": "ON", "link_state": "auto", "max_tx_rate": "0"} {
		k.put(dir+n, v+"\n")
	}
	if err := h.Set(ctx, vf, map[string]string{"mac": "02:00:00:00:00:2A", "vlan": "100", "trust": "on", "rate": "1000"}); err != nil {
		t.Fatal(err)
	}
	f, _ := h.Find(vf)
	a := h.VFAttributes(f)
	if a["mac"] != "02:00:00:00:00:2a" || a["vlan"] != "100" || a["trust"] != "on" || a["rate"] != "1000" || a["spoofcheck"] != "on" {
		t.Errorf("%v", a)
	}
	if did, err := h.Release(vf); err != nil || len(did) != 4 {
		t.Errorf("%v, %v", did, err)
	}
	if k.get(dir+"mac") != "00:00:00:00:00:00" || k.get(dir+"vlan") != "0" || k.get(dir+"trust") != "off" {
		t.Errorf("not as before: %s %s %s", k.get(dir+"mac"), k.get(dir+"vlan"), k.get(dir+"trust"))
	}
	for key, bad := range map[string]string{
		"mac": "01:00:00:00:00:01", "vlan": "4095", "trust": "yes", "spoofcheck": "", "rate": "-1", "link-state": "on\n",
		"node-guid": "02:c9:03:00:00:10:20:30\n", "port-guid": "0", "policy": "Up", "colour": "red", "../x": "1",
	} {
		wantErr(t, h.Set(ctx, vf, map[string]string{key: bad}), "")
	}
	wantErr(t, h.Set(ctx, vf, map[string]string{"node-guid": "02c9:0300:0010:2030"}), "is ethernet")
	wantErr(t, h.Set(ctx, thePF, map[string]string{"vlan": "1"}), "is not a VF")
	if got, err := checkGUID("0x0002c90300102030"); err != nil || got != "00:02:c9:03:00:10:20:30" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestAttributesOutliveCluster: a cluster's end undoes its bindings. A VLAN that an administrator set stays until
// Release.
func TestAttributesOutliveCluster(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf := vfAddress(0)
	vlan := slot + "/" + thePF + "/sriov/0/vlan"
	k.put(vlan, "0\n")
	if err := h.Set(ctx, vf, map[string]string{"vlan": "77"}); err != nil {
		t.Fatal(err)
	}
	before := k.state()
	if err := h.Bind(ctx, vf, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if did, err := h.unbound(vf, os.Getpid()); err != nil || len(did) == 0 {
		t.Errorf("%v, %v", did, err)
	}
	k.settle()
	if got := k.get(vlan); got != "77" {
		t.Errorf("the VLAN is %s after the cluster", got)
	}
	if after := k.state(); after != before {
		t.Errorf("after the cluster:\n%sbefore it:\n%s", after, before)
	}
	if did, err := h.Release(vf); err != nil || len(did) != 1 || k.get(vlan) != "0" {
		t.Errorf("%v, %v: VLAN %s", did, err, k.get(vlan))
	}
}

func FuzzCheckAttribute(f *testing.F) {
	names, _ := Attributes()
	for _, n := range names {
		for _, v := range []string{"02:00:00:00:00:01", "02:c9:03:00:00:10:20:30", "on", "100", "up", "a\nb"} {
			f.Add(n, v)
		}
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if CheckAttribute(key, value) != nil {
			return
		}
		v, err := attributes[key].check(value)
		if err != nil || len(v) > 23 || strings.ContainsAny(v, "\n\x00/ ") {
			t.Fatalf("%q: %q, %v", value, v, err)
		}
		if again, err := attributes[key].check(v); err != nil || again != v {
			t.Fatalf("%q becomes %q", v, again)
		}
	})
}
