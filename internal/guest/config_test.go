package guest

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"nearmetal/test/golden"
)

func fullConfig() *Config {
	return &Config{
		Name: "vm1", Index: 1, Root: Mount{Tag: "root", MSize: 524288},
		Shares: []Mount{{Tag: "s0", Target: "/home/a b/c"}, {Tag: "s1", Target: "/opt/x", ReadOnly: true, MSize: 8192}},
		Links: []Link{
			{Name: "eth0", MAC: "52:54:00:AA:00:01", Address: netip.MustParsePrefix("10.77.0.2/16"), MTU: 65521},
			{Name: "eth1", MAC: "52:54:00:aa:00:02", Address: netip.MustParsePrefix("10.0.2.15/24"), Gateway: netip.MustParseAddr("10.0.2.2")},
		},
		Hosts: []HostEntry{
			{netip.MustParseAddr("10.77.0.1"), []string{"vm0"}},
			{netip.MustParseAddr("fe80::1"), []string{"node-7.cluster", "node-7"}},
		},
		HostName: "node-7",
		Region:   &ConfigRegion{Kind: "ivshmem", Size: 64 << 20, UID: 1000, GID: 100},
		Peers:    []string{"vm0", "vm1"},
		SoftRoCE: []string{"eth0"},
		Functions: []Function{
			{Vendor: 0x8086, Device: 0x10ca, Address: netip.MustParsePrefix("10.78.0.2/16"), Net: true, MTU: 9000},
			{Vendor: 0x15b3, Device: 0x101a, Net: true, RDMA: true},
			{Vendor: 0x15b3, Device: 0x1014, RDMA: true},
			{Vendor: 0x15b3, Device: 0x101c, RDMA: true, IPoIB: true, Address: netip.MustParsePrefix("10.78.0.3/16"), MTU: 4092},
			{Vendor: 0x10de, Device: 0x20b0},
			{Vendor: 0x8086, Device: 0x10ca, Address: netip.MustParsePrefix("10.78.0.4/16"), Net: true, Soft: true},
		},
	}
}

// understood returns the result of the agent's parser for a configuration.
func understood(t *testing.T, text []byte) (string, string) {
	t.Helper()
	var out, er bytes.Buffer
	cmd := exec.Command(agentPath, "--check-config")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &er
	cmd.Run()
	return out.String(), strings.TrimSpace(er.String())
}

func TestConfig(t *testing.T) {
	got, err := fullConfig().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/config/full", string(got))
	if out, er := understood(t, got); out != string(got) {
		t.Errorf("the agent understands\n%s%s", out, er)
	}
	virtiofs := &Config{Name: "vm0", Root: Mount{Tag: "root", Virtiofs: true}, MaxInodes: 524288,
		Shares: []Mount{{Tag: "s0", Virtiofs: true, Target: "/home"}}}
	got, err = virtiofs.Encode()
	if want := "version 1\nname vm0\nindex 0\nroot root virtiofs\nshare s0 virtiofs rw /home\ninodes 524288\n"; err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
	if out, er := understood(t, got); out != string(got) {
		t.Errorf("the agent understands\n%s%s", out, er)
	}
	least := &Config{Name: "vm0", Root: Mount{Tag: "root"}}
	got, err = least.Encode()
	if out, er := understood(t, got); err != nil || out != string(got) {
		t.Errorf("the agent understands\n%s%s", out, er)
	}
}

func TestConfigRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`"vm 0" cannot be a name of a VM`:                                         func(c *Config) { c.Name = "vm 0" },
		`"" cannot be a mount tag`:                                                func(c *Config) { c.Root.Tag = "" },
		`msize 12 of mount tag root: not 4096 to 16777216`:                        func(c *Config) { c.Root.MSize = 12 },
		`"../x" cannot be where a share is mounted`:                               func(c *Config) { c.Shares[0].Target = "../x" },
		`"/a/../b" cannot be where a share is mounted`:                            func(c *Config) { c.Shares[0].Target = "/a/../b" },
		`"/dev/x" cannot be where a share is mounted: it is the VM's own`:         func(c *Config) { c.Shares[0].Target = "/dev/x" },
		`"/run" cannot be where a share is mounted: it is the VM's own`:           func(c *Config) { c.Shares[0].Target = "/run" },
		"\"/a\\nregion\" cannot be where a share is mounted: a control character": func(c *Config) { c.Shares[0].Target = "/a\nregion" },
		`"a-name-that-is-long" cannot be the name of an interface`:                func(c *Config) { c.Links[0].Name = "a-name-that-is-long" },
		`eth0: "52:54" is not a MAC address`:                                      func(c *Config) { c.Links[0].MAC = "52:54" },
		`eth0: invalid Prefix is not an IPv4 address with a prefix`:               func(c *Config) { c.Links[0].Address = netip.Prefix{} },
		`eth0: MTU 70000 is not 576 to 65535`:                                     func(c *Config) { c.Links[0].MTU = 70000 },
		`eth0: gateway ::1 is not an IPv4 address`:                                func(c *Config) { c.Links[0].Gateway = netip.MustParseAddr("::1") },
		`10.77.0.1 [] cannot be a line of /etc/hosts`:                             func(c *Config) { c.Hosts[0].Names = nil },
		`"a b" cannot be a host name`:                                             func(c *Config) { c.Hosts[0].Names = []string{"a b"} },
		`"tape" is not a kind of region`:                                          func(c *Config) { c.Region.Kind = "tape" },
		`"eth 0" cannot be the name of an interface with soft RoCE`:               func(c *Config) { c.SoftRoCE[0] = "eth 0" },
		`device 8086:10ca: ::1/64 is not an IPv4 address with a prefix`:           func(c *Config) { c.Functions[0].Address = netip.MustParsePrefix("::1/64") },
		`18086:10ca is not the ID of a PCI device`:                                func(c *Config) { c.Functions[0].Vendor = 0x18086 },
		`"-x" cannot be a name of a VM`:                                           func(c *Config) { c.Peers[0] = "-x" },
		`"` + strings.Repeat("n", 64) + `" cannot be a name of a VM`:              func(c *Config) { c.Name = strings.Repeat("n", 64) },
	} {
		c := fullConfig()
		change(c)
		if _, err := c.Encode(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestConfigRefusedByTheAgent(t *testing.T) {
	head := "version 1\nname vm0\nroot r 4096\n"
	for text, want := range map[string]string{
		"":                                        "no name",
		"version 2\n":                             `line 1: a wrong "version"`,
		"name vm0\n":                              `line 1: a wrong "name"`,
		"version 1\nname vm0\n":                   "no root",
		head + "name":                             "line 4 has no end",
		head + "name\n":                           `line 4: "name" has no value`,
		head + "shape round\n":                    `line 4: a wrong "shape"`,
		head + "version 1\n":                      `line 4: a wrong "version"`,
		head + "root r 99999999\n":                `line 4: a wrong "root"`,
		head + "root r virtiofsd\n":               `line 4: a wrong "root"`,
		head + "inodes 0\n":                       `line 4: a wrong "inodes"`,
		head + "share s 4096 rw a\n":              `line 4: a wrong "share"`,
		head + "share s 4096 rw /a/..\n":          `line 4: a wrong "share"`,
		head + "share s 4096 wr /a\n":             `line 4: a wrong "share"`,
		head + "link e 1 2 3 4\n":                 `line 4: a wrong "link"`,
		head + "host 10.0.0.1\n":                  `line 4: a wrong "host"`,
		head + "region tape 1 2 3\n":              `line 4: a wrong "region"`,
		head + "region ivshmem -1 2 3\n":          `line 4: a wrong "region"`,
		head + "rdma rxe0\n":                      `line 4: a wrong "rdma"`,
		head + "rdma rxe0 ../x\n":                 `line 4: a wrong "rdma"`,
		head + "function 8086 1 - net 0\n":        `line 4: a wrong "function"`,
		head + "function 8086 10ca - x 0\n":       `line 4: a wrong "function"`,
		head + "function 8086 10ca 1 net 0\n":     `line 4: a wrong "function"`,
		head + "function 8086 10ca - net\n":       `line 4: a wrong "function"`,
		head + "function 8086 10ca - net 575\n":   `line 4: a wrong "function"`,
		head + "function 8086 10ca - net 65536\n": `line 4: a wrong "function"`,
		head + "peer \x01\n":                      `line 4: a wrong "peer"`,
		head + "a\x00b\n":                         "a NUL byte",
	} {
		if out, er := understood(t, []byte(text)); er != want {
			t.Errorf("%q: got %q %q, want %q", text, out, er, want)
		}
	}
}

// FuzzConfig: the agent's parser accepts all output of Encode. (The parser itself is fuzzed in C, guest/fuzz.)
func FuzzConfig(f *testing.F) {
	f.Add("vm0", "root", "/a b", "52:54:00:00:00:01", "host-1", uint64(1<<20))
	f.Fuzz(func(t *testing.T, name, tag, target, mac, host string, size uint64) {
		c := &Config{Name: name, Root: Mount{Tag: tag}, Shares: []Mount{{Tag: tag, Target: target}},
			Links:    []Link{{Name: "eth0", MAC: mac, Address: netip.MustParsePrefix("10.0.0.1/8")}},
			HostName: host, Region: &ConfigRegion{Kind: "devdax", Size: size >> 1}}
		text, err := c.Encode()
		if err != nil {
			return
		}
		if out, er := understood(t, text); out != string(text) {
			t.Fatalf("%q: %s", text, er)
		}
	})
}
