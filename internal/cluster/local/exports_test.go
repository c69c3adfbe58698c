package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/test/nobody"
)

// Checks that directories which cannot be shown to the VMs are rejected with a remedy.
func TestCheckExports(t *testing.T) {
	file := filepath.Join(nobody.Dir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, closed := nobody.Dir(t), nobody.Dir(t)
	if err := os.Chmod(closed, 0o100); err != nil {
		t.Fatal(err)
	}
	// Links to a missing target, in a loop, to a file and to a directory.
	links := nobody.Dir(t)
	for name, to := range map[string]string{"a": "b", "b": "a", "dangling": "nothing", "file": file, "dir": readOnly} {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		share spec.Share
		want  string
	}{
		{spec.Share{Path: readOnly, Mode: "ro"}, ""},
		{spec.Share{Path: readOnly, Mode: "rw"}, "you may not write to it (mode dr-xr-xr-x): share it read-only (--share " + readOnly + ":ro, or mode: ro)"},
		{spec.Share{Path: closed, Mode: "ro"}, "leave it out (--no-share"},
		{spec.Share{Path: file, Mode: "ro"}, "it is not a directory"},
		{spec.Share{Path: "/no/such", Mode: "ro"}, "no such file or directory"},
		{spec.Share{Path: links + "/a", Mode: "ro"}, "share " + links + "/a cannot be shown to the VMs: too many levels of symbolic links"},
		{spec.Share{Path: links + "/dangling", Mode: "ro"}, "no such file or directory"},
		{spec.Share{Path: links + "/file", Mode: "ro"}, "it is not a directory"},
		{spec.Share{Path: links + "/dir", Mode: "ro"}, ""},
	} {
		nobody.Do(t, func() {
			err := checkExports(&spec.Cluster{Root: "host", Shares: []spec.Share{c.share}})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want %q", c.share, err, c.want)
			}
		})
	}
	if os.Geteuid() != 0 {
		return
	}
	// As root, a missing directory is reported before one that root's VMs could write to.
	for path, want := range map[string]string{"/no/such": "no such file or directory", readOnly: "--root-writes"} {
		if err := checkExports(&spec.Cluster{Root: "host", Shares: []spec.Share{{Path: path, Mode: "rw"}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("as root, %s: %v, want %q", path, err, want)
		}
	}
}
