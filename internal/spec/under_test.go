package spec

import (
	"fmt"
	"testing"
)

func parse(t *testing.T, text string) *Cluster {
	t.Helper()
	c, err := Parse("cluster.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUnder(t *testing.T) {
	c := parse(t, "name: mine\naccel: tcg\nenv: {A: file}\nnetwork: {mtu: 9000}\nvms: [{count: 3}, {name: big, memory: 4GiB}]\n")
	d := parse(t, "accel: kvm\nhome: share\nenv: {A: site, B: site}\nnetwork: {mtu: 1500, uplink: none}\nregion: {size: 4MiB}\n"+
		"vms: [{name: site, count: 9, vcpus: 2, memory: 1GiB}]\nshares: [{path: /srv}]\n")
	Under(c, d)
	got := fmt.Sprint(c.Name, c.Accel, c.Home, c.Env, c.Network.MTU, c.Network.Uplink, *c.Region.Size, c.Shares == nil, c.VMs)
	want := fmt.Sprint("mine", "tcg", "share", map[string]string{"A": "file", "B": "site"}, 9000, "none", Size(4<<20), true,
		[]Group{{Count: 3, VCPUs: 2, Memory: 1 << 30}, {Name: "big", VCPUs: 2, Memory: 4 << 30}})
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c = &Cluster{}
	Under(c, d)
	if len(c.VMs) != 1 || c.VMs[0].Count != 9 || c.VMs[0].Name != "site" {
		t.Errorf("no groups of its own: %+v", c.VMs)
	}
	c.VMs[0].Count, c.Env["A"] = 1, "changed"
	if d.VMs[0].Count != 9 || d.Env["A"] != "site" {
		t.Error("the defaults were changed")
	}
}

// A share of a directory that holds others comes before them: it is mounted first.
func TestAddShare(t *testing.T) {
	at := func(c *Cluster) (s string) {
		for _, x := range c.Shares {
			s += x.Target + ":" + x.Mode + " "
		}
		return s
	}
	share := func(p string) Share { return Share{Path: p, Target: p, Mode: "rw"} }
	c := &Cluster{Shares: []Share{share("/data"), share("/home/u/work"), share("/home/u/x")}}
	c.AddShare(share("/home/u"), false)
	c.AddShare(share("/scratch"), true)
	c.AddShare(share("/data"), true) // it is there
	if got, want := at(c), "/data:rw /home/u:rw /home/u/work:rw /home/u/x:rw /scratch:ro "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c = &Cluster{Home: "share", RootWrites: true}
	home := t.TempDir()
	if err := c.ShareHome(home, true); err != nil || at(c) != home+":rw " {
		t.Errorf("%s, %v", at(c), err)
	}
	for _, bad := range []string{"/", "/etc", "relative", "", "/var/lib/u"} {
		if err := c.ShareHome(bad, false); err == nil {
			t.Errorf("%q was shared: %s", bad, at(c))
		}
	}
	if err := (&Cluster{Home: "none"}).ShareHome("/", false); err != nil {
		t.Error(err)
	}
}
