package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fileLinks are links of a captured tree: each attribute is a file below its directory links/.
type fileLinks struct{ root string }

func init() {
	linksOf = func(root string) Links {
		if _, err := os.Stat(filepath.Join(root, "links")); root != "" && err == nil {
			return fileLinks{root}
		}
		if root != "" {
			return noLinks{}
		}
		return netlinkLinks{}
	}
}

func (l fileLinks) There() bool                        { return true }
func (l fileLinks) Addresses(string) ([]string, error) { return nil, nil }

func (l fileLinks) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.root, "links", name))
	return strings.TrimSpace(string(b)), err
}

func (l fileLinks) write(name, value string) error {
	f, err := os.OpenFile(filepath.Join(l.root, "links", name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return unix.EOPNOTSUPP
	}
	defer f.Close()
	if order, err := os.OpenFile(filepath.Join(l.root, "order"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
		fmt.Fprintln(order, name)
		order.Close()
	}
	dieAt()
	_, err = f.WriteString(value)
	dieAt()
	return err
}

// die selects the write before or after which (2n-1, 2n) the test's program is killed.
const die = "NEARMETAL_TEST_DEVICE_DIE"

var toDie, _ = strconv.Atoi(os.Getenv(die))

func dieAt() {
	if toDie--; toDie == 0 {
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}

// vfs refuses an interface that is a representor, which has no VFs of its own.
func (l fileLinks) vfs(pf string) error {
	if b, err := os.ReadFile(filepath.Join(l.root, slot, thePF, "net", pf, "phys_port_name")); err == nil && strings.Contains(string(b), "vf") {
		return unix.EOPNOTSUPP
	}
	return nil
}

func (l fileLinks) Get(pf string, index int, key string) (string, error) {
	if err := l.vfs(pf); err != nil {
		return "", err
	}
	return l.read(key + "." + strconv.Itoa(index))
}

func (l fileLinks) Carried(pf string, index int) (received, sent uint64, err error) {
	if err := l.vfs(pf); err != nil {
		return 0, 0, err
	}
	text, err := l.read("carried." + strconv.Itoa(index))
	if err == nil {
		_, err = fmt.Sscan(text, &received, &sent)
	}
	return received, sent, err
}

func (l fileLinks) Set(pf string, index int, key, value string) error {
	if err := l.vfs(pf); err != nil {
		return err
	}
	if value == noGUID {
		return fmt.Errorf("%s: %w", key, unix.EINVAL) // as a card that cannot remove a GUID
	}
	return l.write(key+"."+strconv.Itoa(index), value)
}

func (l fileLinks) Eswitch(at string) (string, error) {
	v, err := l.read("eswitch")
	if err != nil {
		return "", errNoEswitch
	}
	return v, nil
}

func (l fileLinks) SetEswitch(at, mode string) error { return l.write("eswitch", mode) }

// putLinks adds links with these values to the tree.
func putLinks(k *kernel, values map[string]string) {
	os.MkdirAll(k.root+"/links", 0o755)
	for n, v := range values {
		k.put("/links/"+n, v)
	}
}

// infiniband makes the captured card an InfiniBand card, by its class.
func infiniband(k *kernel) {
	for _, a := range k.devices() {
		if strings.HasPrefix(a, "0000:41:") {
			k.put(pciDevices+"/"+a+"/class", "0x020700\n")
		}
	}
	k.put(slot+"/"+thePF+"/net/eth0/type", "32\n")
}

// TestSetGUIDs: GUIDs that are set over netlink are read before, and restored by Release.
func TestSetGUIDs(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	infiniband(k)
	before := map[string]string{"node-guid.1": "02:c9:03:00:00:10:20:30", "port-guid.1": noGUID, "policy.1": "down"}
	putLinks(k, before)
	h := open(t, root)
	const vf = "0000:41:10.2"
	if err := h.Set(ctx, vf, map[string]string{"node-guid": "02c9030000aa0001", "port-guid": "02c9030000aa0002", "policy": "follow"}); err != nil {
		t.Fatal(err)
	}
	f, _ := h.Find(vf)
	if a := h.VFAttributes(f); a["node-guid"] != "02:c9:03:00:00:aa:00:01" || a["port-guid"] != "02:c9:03:00:00:aa:00:02" || a["policy"] != "follow" {
		t.Errorf("%v", a)
	}
	did, err := h.Release(vf)
	if err != nil || len(did) != 2 {
		t.Errorf("%v, %v", did, err)
	}
	// The card cannot remove a GUID, which must not make Release fail forever.
	before["port-guid.1"] = "02:c9:03:00:00:aa:00:02"
	for n, v := range before {
		if got := k.get("/links/" + n); got != v {
			t.Errorf("%s is %s after release, want %s", n, got, v)
		}
	}
}

// TestEnableInfiniBand: the VFs of an InfiniBand card get their GUIDs, and then the policy by which their links
// follow the card's: the firmware's is Down, with which no port comes up. The driver of MLNX_OFED has files for it,
// the kernel's own has netlink on the IPoIB interface.
func TestEnableInfiniBand(t *testing.T) {
	for _, ofed := range []bool{false, true} {
		root := capture(t, "s0")
		k := emulate(t, root)
		k.ofed = ofed
		infiniband(k)
		if !ofed {
			k.put("/order", "")
			putLinks(k, map[string]string{"node-guid.0": noGUID, "port-guid.0": noGUID, "policy.0": "down",
				"node-guid.1": noGUID, "port-guid.1": noGUID, "policy.1": "down"})
		}
		h := open(t, root)
		if err := h.EnableVFs(ctx, thePF, 2); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			for key, want := range map[string]string{"node-guid": h.StableGUID("node", thePF, i).String(),
				"port-guid": h.StableGUID("port", thePF, i).String(), "policy": "follow"} {
				if got, err := h.getVF(thePF, i, key); err != nil || got != want {
					t.Errorf("ofed %v: VF %d has %s %q, %v; want %s", ofed, i, key, got, err, want)
				}
			}
		}
		if got, want := k.get("/order"), "node-guid.0\nport-guid.0\npolicy.0\nnode-guid.1\nport-guid.1\npolicy.1"; !ofed && got != want {
			t.Errorf("set in the order %q", got)
		}
		if ofed && k.get(slot+"/"+thePF+"/sriov/1/policy") != "Follow" {
			t.Errorf("policy is written as %q", k.get(slot+"/"+thePF+"/sriov/1/policy"))
		}
	}
}

// TestEnableInfiniBandWithoutPolicy: a driver without policies, such as mlx4's, rejects them: its VFs' links follow
// the card's.
func TestEnableInfiniBandWithoutPolicy(t *testing.T) {
	root := capture(t, "s0")
	k := emulate(t, root)
	infiniband(k)
	putLinks(k, map[string]string{"node-guid.0": noGUID, "port-guid.0": noGUID})
	if err := open(t, root).EnableVFs(ctx, thePF, 1); err != nil {
		t.Error(err)
	}
}

// TestEnableInfiniBandWithoutInterface: with the kernel's own driver and no IPoIB interface GUIDs cannot be set: no
// unusable VFs are left.
func TestEnableInfiniBandWithoutInterface(t *testing.T) {
	root := capture(t, "s0")
	k := emulate(t, root)
	infiniband(k)
	putLinks(k, nil)
	os.RemoveAll(root + slot + "/" + thePF + "/net")
	k.put(slot+"/"+thePF+"/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n")
	before := k.state()
	wantErr(t, open(t, root).EnableVFs(ctx, thePF, 2), thePF, "no GUIDs", "modprobe mlx5_ib ib_ipoib")
	k.settle()
	if after := k.state(); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestEswitch(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	wantErr(t, h.SetEswitch(ctx, thePF, "switchdev"), thePF, "no eswitch")
	putLinks(k, map[string]string{"eswitch": "legacy"})
	h = open(t, root)
	wantErr(t, h.SetEswitch(ctx, "0000:41:10.0", "switchdev"), "is a VF", thePF)
	wantErr(t, h.SetEswitch(ctx, thePF, "switchdev\n"), "legacy, switchdev")
	if d, err := h.Show(ctx, thePF); err != nil || d.Eswitch != "legacy" {
		t.Errorf("%+v, %v", d, err)
	}
	c, err := h.Claim("0000:41:10.0", "mine")
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, h.SetEswitch(ctx, thePF, "switchdev"), "0000:41:10.0 is in use by cluster mine")
	c.Close()
	k.put("/proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n")
	wantErr(t, h.SetEswitch(ctx, thePF, "switchdev"), "default route goes over eth0")
	os.Remove(root + "/proc/net/route")
	if err := h.SetEswitch(ctx, thePF, "switchdev"); err != nil || k.get("/links/eswitch") != "switchdev" {
		t.Errorf("%v, and it is %s", err, k.get("/links/eswitch"))
	}
	if did, err := h.Release(thePF); err != nil || len(did) != 1 || k.get("/links/eswitch") != "legacy" {
		t.Errorf("%v, %v, and it is %s", did, err, k.get("/links/eswitch"))
	}
}

// TestNoEswitch queries a function without a devlink device, on the running kernel.
func TestNoEswitch(t *testing.T) {
	if m, err := (netlinkLinks{}).Eswitch("ffff:ff:1f.7"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q, %v", m, err)
	}
}

func ethernetLinks(k *kernel) {
	putLinks(k, map[string]string{"mac.0": "02:00:00:00:00:09", "vlan.0": "5", "rate.0": "0", "eswitch": "legacy"})
}

func infinibandLinks(k *kernel) {
	infiniband(k)
	putLinks(k, map[string]string{"node-guid.0": "02:c9:03:00:00:10:20:30", "port-guid.0": "02:c9:03:00:00:10:20:31", "policy.0": "down"})
}

// In switchdev mode a card has representors of its VFs and its own interface, also under names that come before it.
func TestRepresentors(t *testing.T) {
	for _, own := range []string{"", "p0\n"} {
		root := capture(t, "s1")
		k := emulate(t, root)
		ethernetLinks(k)
		k.put("/links/carried.0", "12 34\n")
		alone := open(t, root)
		pf, _ := alone.Find(thePF)
		mac := alone.StableMAC(thePF, 0).String()
		for n, port := range map[string]string{"a0": "pf0vf0\n", "b0": "c1pf0vf1\n", "eth0": own} {
			if port != "" {
				k.put(slot+"/"+thePF+"/net/"+n+"/phys_port_name", port)
			}
			if n != "eth0" {
				k.put(slot+"/"+thePF+"/net/"+n+"/address", "02:00:00:00:00:77\n")
			}
		}
		h := open(t, root)
		if now, _ := h.Find(thePF); now.MAC != pf.MAC || h.StableMAC(thePF, 0).String() != mac {
			t.Errorf("own interface %q: the card's MAC is %s, want %s; its first VF's follows from another", own, now.MAC, pf.MAC)
		}
		const vf = "0000:41:10.0"
		if err := h.Set(ctx, vf, map[string]string{"vlan": "7"}); err != nil || k.get("/links/vlan.0") != "7" {
			t.Errorf("own interface %q: %v, and the VLAN is %s", own, err, k.get("/links/vlan.0"))
		}
		f, _ := h.Find(vf)
		if a := h.VFAttributes(f); a["vlan"] != "7" {
			t.Errorf("own interface %q: %v", own, a)
		}
		if in, out, err := h.Carried(vf); err != nil || in != 12 || out != 34 {
			t.Errorf("own interface %q: %d, %d, %v", own, in, out, err)
		}
	}
}
