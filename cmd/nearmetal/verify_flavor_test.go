package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/hosttree"
)

// A captured VM is compared with a flavor: the exit status follows the rows, and wrong usage gives a one-line error.
func TestVerifyFlavor(t *testing.T) {
	dir := t.TempDir()
	const data = "../../internal/cloud/testdata/"
	if err := hosttree.Write(dir, data+"one.machine", data+"vm.attrs", data+"aws.attrs"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "flavor.json")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"name": "m5a.4xlarge", "vcpus": 16, "ram": 65536, "properties": {"hw:cpu_threads": "2"}}`)
	out, err := command(t, newVerifyCommand, "--flavor", file, "--root", dir)
	if err != nil || !strings.Contains(out, "as planned") {
		t.Errorf("%v\n%s", err, out)
	}
	put(`[{"Name": "small", "VCPUs": 1, "RAM": 512}, {"Name": "m5a.4xlarge", "VCPUs": 16, "RAM": 65536, "Properties": {"hw:cpu_threads": "1"}}]`)
	if out, err = command(t, newVerifyCommand, "--flavor", file, "--root", dir, "--json"); err == nil || err.Error() != "ip-10-0-0-1 is not as its flavor says: 1 of 14 points differ" {
		t.Errorf("%v\n%s", err, out)
	}
	for _, c := range []struct{ args, want string }{
		{"--flavor " + file + " --domain x", "leave out"},
		{"--flavor " + file + " demo", "leave out"},
		{"--root " + dir, "goes with --flavor"},
		{"--flavor " + dir + "/none", "no such file"},
		{"--flavor " + data + "vm.attrs", "not what openstack"},
	} {
		if _, err := command(t, newVerifyCommand, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	if out, err := command(t, newCheckCommand, "--vm", "--root", dir); !strings.Contains(out, "flavor m5a.4xlarge") || !strings.Contains(out, "vm.") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := command(t, newCheckCommand, "--vm", "--for", "vm-host"); err == nil || !strings.Contains(err.Error(), "leave out --for") {
		t.Error(err)
	}
	if _, err := command(t, newCheckCommand, "--vm", "nobody/vm0"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Error(err)
	}
}
