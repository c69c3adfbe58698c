package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// Checks that an invalid list of hosts is rejected before any host is connected.
func TestCheckHosts(t *testing.T) {
	enter(t, "tree/sys")
	many := make([]string, MaxHosts+1)
	for i := range many {
		many[i] = fmt.Sprintf("n%d", i)
	}
	for _, c := range []struct {
		want  string
		hosts []string
		set   func(*spec.Cluster)
	}{
		{"", []string{"n1", "me@n2"}, nil},
		{"describes a machine", []string{"n1", "n2.xml"}, nil},
		{"describes a machine", []string{"./n1"}, nil},
		{"describes a machine", []string{"tree"}, nil},
		{"twice", []string{"n1", "n1"}, nil},
		{"not a host's name", []string{"-x"}, nil},
		{"more than ssh is used for", many, nil},
		{"network: none", []string{"n1"}, func(s *spec.Cluster) { s.Network.Type = "none" }},
	} {
		s := &spec.Cluster{VMs: []spec.Group{{}}}
		s.Placement.Hosts = c.hosts
		if c.set != nil {
			c.set(s)
		}
		err := CheckHosts(s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.hosts, err, c.want)
		}
	}
}

// enter changes to a new directory with the subdirectory folder.
func enter(t *testing.T, folder string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	old, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chdir(old) })
}

// Checks that hosts which cannot run one cluster together are named.
func TestHostsCheck(t *testing.T) {
	for want, change := range map[string]func(h *farHost){
		"":                         func(h *farHost) {},
		"a and b are one host":     func(h *farHost) { h.facts.Machine = "1" },
		"runs VMs by tcg":          func(h *farHost) { h.facts.Accel = "kvm" },
		"neither kvm nor tcg":      func(h *farHost) { h.facts.Accel = "\x1b[31m" },
		"must be the same":         func(h *farHost) { h.facts.User.UID = 7 },
		"invalid user (too":        func(h *farHost) { h.facts.User.Groups = make([]uint32, 1<<17) },
		"reported an invalid user": func(h *farHost) { h.facts.User.Home = strings.Repeat("x", 1<<20) },
	} {
		a, b := &farHost{name: "a"}, &farHost{name: "me@b"}
		a.facts, b.facts = hostFacts{Machine: "1", Accel: "tcg", Addr: "10.0.0.1"}, hostFacts{Machine: "2", Accel: "tcg", Addr: "x; rm"}
		b.name = strings.TrimPrefix(b.name, "me@")
		change(b)
		err := (&Fleet{hosts: []*farHost{a, b}}).check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil && (a.addr != "10.0.0.1" || b.addr != "b") {
			t.Errorf("addresses %q, %q", a.addr, b.addr)
		}
	}
}

// Checks that a host's report of its VMs is accepted only if it matches the request.
func TestHostRecords(t *testing.T) {
	p := &plan.Plan{VMs: []plan.VM{{Name: "vm0", Host: "a", VCPUs: 2, MemoryBytes: 5}, {Name: "vm1", Host: "b"}}}
	f := &Fleet{hosts: []*farHost{{name: "a", vms: []string{"vm0"}}, {name: "b", vms: []string{"vm1"}}}}
	good := func() []*hostReady {
		return []*hostReady{
			{VMs: []state.VMRecord{{Name: "vm0", IP: "10.77.0.1", Subnet: "10.77.0.0/16", VCPUs: 99, PID: 1, State: "odd"}}},
			{VMs: []state.VMRecord{{Name: "vm1", IP: "10.77.0.2", Subnet: "10.77.0.0/16"}}}}
	}
	list, _, err := f.records(p, good())
	if err != nil || len(list) != 2 || list[0].VCPUs != 2 || list[0].PID != 0 || list[0].State != state.Ready || list[1].Host != "b" {
		t.Errorf("%+v, %v", list, err)
	}
	for what, change := range map[string]func(r *hostReady){
		"another's VM":     func(r *hostReady) { r.VMs[0].Name = "vm0" },
		"no VM":            func(r *hostReady) { r.VMs = nil },
		"more VMs":         func(r *hostReady) { r.VMs = append(r.VMs, r.VMs[0]) },
		"no address":       func(r *hostReady) { r.VMs[0].IP = "vm0" },
		"not its subnet's": func(r *hostReady) { r.VMs[0].IP = "192.0.2.1" },
		"a provider alone": func(r *hostReady) { r.Fabric = "/x" },
	} {
		r := good()
		change(r[1])
		if _, _, err := f.records(p, r); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// Checks that VMs which do not reach each other are reported once, although each of their hosts reports them.
func TestHostsUnreached(t *testing.T) {
	f := &Fleet{hosts: []*farHost{{name: "a"}, {name: "b"}, {name: "c"}}}
	for _, c := range []struct {
		said [3]string
		want string
	}{
		{[3]string{}, ""},
		{[3]string{"", "x", ""}, "host b: x"},
		{[3]string{"x\a", "", "y"}, "host a: x? (1 other host reports such VMs)"},
		{[3]string{"x", "y", "z"}, "host a: x (2 other hosts report such VMs)"},
	} {
		var readies []*hostReady
		for _, s := range c.said {
			readies = append(readies, &hostReady{Unreached: s})
		}
		if got := f.unreached(readies); got != c.want {
			t.Errorf("%q: %q, want %q", c.said, got, c.want)
		}
	}
}

func TestPartName(t *testing.T) {
	for _, n := range []string{"a", "demo", strings.Repeat("x", state.MaxName), strings.Repeat("x", 34) + "-yyyyy"} {
		if err := spec.CheckName(partName(n)); err != nil || partName(n) == n {
			t.Errorf("%s: %v", partName(n), err)
		}
	}
}
