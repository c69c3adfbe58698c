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

// TestAddShare: a share of a directory that contains others precedes them, because it is mounted first.
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
	c.AddShare(share("/data"), true) // it already exists
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

// TestLosesHome: files in the home directory are lost unless a share contains it, or the user has chosen that.
func TestLosesHome(t *testing.T) {
	shares := func(targets ...string) (list []Share) {
		for _, p := range targets {
			list = append(list, Share{Path: p, Target: p, Mode: "rw"})
		}
		return list
	}
	for _, c := range []struct {
		cluster Cluster
		home    string
		want    bool
	}{
		{Cluster{Shares: shares("/scratch")}, "/home/u", true},
		{Cluster{}, "/root", true},
		{Cluster{Shares: shares("/home/u/work")}, "/home/u", true},
		{Cluster{Shares: shares("/scratch", "/home/u")}, "/home/u", false},
		{Cluster{Shares: shares("/home")}, "/home/u", false},
		{Cluster{Home: "none"}, "/home/u", false},
		{Cluster{Home: "share"}, "/home/u", false},
		{Cluster{Root: RootBackend}, "/home/u", false},
		{Cluster{}, "/", false}, // a service's home
		{Cluster{}, "/var/lib/u", false},
		{Cluster{}, "", false},
	} {
		if got := c.cluster.LosesHome(c.home); got != c.want {
			t.Errorf("%+v, %s: %v", c.cluster, c.home, got)
		}
	}
}

// TestUnderKernelModules: the modules of a default belong to the default's own kernel.
func TestUnderKernelModules(t *testing.T) {
	site := &Cluster{Kernel: "/srv/root/boot/vmlinuz", KernelModules: "/srv/root/modules"}
	for _, tt := range []struct {
		c    Cluster
		want string
	}{
		{Cluster{}, "/srv/root/modules"},
		{Cluster{Kernel: "/boot/vmlinuz"}, ""},
		{Cluster{Kernel: "/boot/vmlinuz", KernelModules: "/m"}, "/m"},
	} {
		if Under(&tt.c, site); tt.c.KernelModules != tt.want {
			t.Errorf("%+v", tt.c)
		}
	}
}
