package spec

import (
	"strings"
	"testing"
)

// A working directory that the VMs cannot write to gets a notice with the remedy.
func TestReadOnlyNotice(t *testing.T) {
	for root, want := range map[bool]string{
		false: "note: you may not write in /data: it is read-only in the VMs (--share .:ro leaves this line out)",
		true:  "note: running as root: /data is read-only in the VMs (--root-writes to change)",
	} {
		if got := readOnlyNotice("/data", root); got != want {
			t.Errorf("root %v: %q", root, got)
		}
	}
}

func TestSetShares(t *testing.T) {
	const cwd = "/srv/run"
	tools := Share{Path: "/opt/tools", Target: "/opt/tools", Mode: "ro"}
	for name, c := range map[string]struct {
		c            Cluster
		given        []Share
		none, asRoot bool
		want, notice string // PATH:TARGET:MODE of each share, and part of the notice
	}{
		"the default":        {want: "/srv/run:/srv/run:rw"},
		"as root":            {asRoot: true, want: "/srv/run:/srv/run:ro", notice: "--root-writes"},
		"root may write":     {c: Cluster{RootWrites: true}, asRoot: true, want: "/srv/run:/srv/run:rw"},
		"given as well":      {given: []Share{tools}, want: "/srv/run:/srv/run:rw /opt/tools:/opt/tools:ro"},
		"given for it":       {given: []Share{{Path: ".", Mode: "ro"}}, asRoot: true, want: "/srv/run:/srv/run:ro"},
		"none":               {none: true},
		"none but one":       {none: true, given: []Share{tools}, want: "/opt/tools:/opt/tools:ro"},
		"the file's own":     {c: Cluster{Shares: []Share{{Path: "data", Target: "/data", Mode: "rw"}}}, want: "/srv/run/data:/data:rw"},
		"over the file's":    {c: Cluster{Shares: []Share{{Path: "/x", Target: "/opt/tools", Mode: "rw"}}}, given: []Share{tools}, want: "/opt/tools:/opt/tools:ro"},
		"the backend's root": {c: Cluster{Root: RootBackend}, notice: "with root: backend only"},
		"not the backend's":  {c: Cluster{Root: RootBackend}, given: []Share{tools}, want: "/opt/tools:/opt/tools:ro"},
	} {
		notice, err := c.c.SetShares(c.given, c.none, cwd, c.asRoot)
		var got []string
		for _, s := range c.c.Shares {
			got = append(got, s.Path+":"+s.Target+":"+s.Mode)
		}
		if err != nil || strings.Join(got, " ") != c.want || (notice == "") != (c.notice == "") || !strings.Contains(notice, c.notice) {
			t.Errorf("%s: %q, notice %q, %v", name, got, notice, err)
		}
	}
	if notice, err := new(Cluster).SetShares(nil, false, "/tmp", false); err != nil || !strings.Contains(notice, "/tmp is not shared") {
		t.Errorf("%q, %v", notice, err)
	}
	if _, err := new(Cluster).SetShares([]Share{{Path: "/a", Target: "relative", Mode: "rw"}}, false, cwd, false); err == nil {
		t.Error("a share with a relative target is accepted")
	}
}
