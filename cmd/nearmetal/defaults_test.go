package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/site"
	"nearmetal/internal/spec"
)

// specShown returns the cluster that spec show prints for flags.
func specShown(t *testing.T, flags ...string) *spec.Cluster {
	t.Helper()
	var out, errs bytes.Buffer
	if code := execute(append([]string{"spec", "show", "--json"}, flags...), strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("%q: %d, %s", flags, code, errs.String())
	}
	c := &spec.Cluster{}
	if err := json.Unmarshal(out.Bytes(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Flags override a cluster file, which overrides the user's defaults, which override the site's.
func TestDefaultsOfSite(t *testing.T) {
	enter(t, "testdata/files")
	t.Setenv(varRootWrites, "1")
	home, data := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	put := func(path, text string) {
		t.Helper()
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	user := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nearmetal")
	put(filepath.Join(site.Etc, "config.yaml"), "home: share\nfabric: none\nvms: [{memory: 1GiB, vcpus: 3}]\nshares: [{path: "+data+", mode: ro}]\n")
	put(filepath.Join(user, "config.yaml"), "fabric: auto\nvms: [{memory: 3GiB}]\n")
	put(filepath.Join(site.Etc, "templates", "pair.yaml"), "vms: [{count: 2}]\n")

	shares := func(c *spec.Cluster) string {
		var list []string
		for _, s := range c.Shares {
			list = append(list, s.Target+":"+s.Mode)
		}
		return strings.Join(list, " ")
	}
	cwd, _ := os.Getwd()
	c := specShown(t)
	if g := c.VMs[0]; c.Fabric != "auto" || g.Memory != 3<<30 || g.VCPUs != 3 || shares(c) != cwd+":rw "+data+":ro "+home+":rw" {
		t.Errorf("defaults: fabric %s, %+v, shares %s", c.Fabric, g, shares(c))
	}
	c = specShown(t, "-f", "pair", "--memory", "512MiB", "--no-home")
	if g := c.VMs[0]; g.Count != 2 || g.Memory != 512<<20 || shares(c) != cwd+":rw "+data+":ro" {
		t.Errorf("a template and flags: %+v, shares %s", g, shares(c))
	}
	if c := specShown(t, "--no-share"); len(c.Shares) != 0 {
		t.Errorf("--no-share: %s", shares(c))
	}
	put("pair", "vms: [{count: 7}]\n") // a file here has precedence over a template
	if c := specShown(t, "-f", "pair"); c.VMs[0].Count != 7 {
		t.Errorf("a file called as a template: %+v", c.VMs)
	}
	t.Setenv(varRootWrites, "")
	if c := specShown(t); os.Geteuid() == 0 && strings.Contains(shares(c), "rw") {
		t.Errorf("root's VMs may write: %s", shares(c))
	}
	var out, errs bytes.Buffer
	os.Chmod(filepath.Join(user, "config.yaml"), 0o666)
	if code := execute([]string{"spec", "show"}, strings.NewReader(""), &out, &errs); code != exitFailure || !strings.Contains(errs.String(), "can be written to by others") {
		t.Errorf("a file that others may write: %d, %s", code, errs.String())
	}
}
