package install

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A folder that was copied with its build is a project of its own: nothing is written to the one that it was copied from.
func TestCopiedBuild(t *testing.T) {
	for _, p := range []string{"meson", "ninja"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("this test needs ", p)
		}
	}
	script, err := os.ReadFile("../../scripts/meson.sh")
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	first, second := filepath.Join(top, "first"), filepath.Join(top, "se cond")
	build := "project('copied')\ncustom_target('made', output: 'made', input: 'text', command: ['cp', '@INPUT@', '@OUTPUT@'], build_by_default: true)\n"
	if err := errors.Join(os.MkdirAll(first+"/scripts", 0o755), os.WriteFile(first+"/scripts/meson.sh", script, 0o644),
		os.WriteFile(first+"/meson.build", []byte(build), 0o644), os.WriteFile(first+"/text", []byte("first"), 0o644)); err != nil {
		t.Fatal(err)
	}
	run := func(dir, command string, args ...string) string {
		t.Helper()
		cmd := exec.Command(command, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", command, args, err, out)
		}
		return string(out)
	}
	made := func(dir string) string {
		t.Helper()
		said := run(dir, "sh", "scripts/meson.sh")
		run(dir, "ninja", "-C", "build/c")
		var info struct{ Directories struct{ Source string } }
		text, err := os.ReadFile(dir + "/build/c/meson-info/meson-info.json")
		if err == nil {
			err = json.Unmarshal(text, &info)
		}
		if real, _ := filepath.EvalSymlinks(dir); err != nil || info.Directories.Source != real {
			t.Errorf("the build of %s is that of %s (%v)", dir, info.Directories.Source, err)
		}
		return said
	}
	made(first)
	run(top, "cp", "-a", first, second)
	if err := errors.Join(os.WriteFile(second+"/text", []byte("second"), 0o644), os.Remove(second+"/build/c/made"), os.Remove(first+"/build/c/made")); err != nil {
		t.Fatal(err)
	}
	if said := made(second); !strings.Contains(said, "build/c was set up for "+first) || strings.Count(said, "\n") != 1 {
		t.Errorf("%q", said)
	}
	if text, err := os.ReadFile(second + "/build/c/made"); string(text) != "second" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(first + "/build/c/made"); err == nil {
		t.Error("the first folder was written to")
	}
	before, _ := os.Stat(second + "/build/c/build.ninja")
	if said := made(second); said != "" {
		t.Errorf("a second time: %q", said)
	}
	if after, err := os.Stat(second + "/build/c/build.ninja"); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("it was set up once more: %v", err)
	}
}
