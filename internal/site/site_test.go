package site

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lay sets up the two directories; files are named below "etc" and "user".
func lay(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	old := Etc
	Etc = filepath.Join(dir, "etc")
	t.Cleanup(func() { Etc = old })
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	for name, text := range files {
		path := filepath.Join(dir, strings.Replace(name, "user/", "config/nearmetal/", 1))
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDefaults(t *testing.T) {
	dir := lay(t, map[string]string{"etc/config.yaml": "home: share\nkernel: vmlinuz\n", "user/config.yaml": "home: none\n"})
	list, err := Defaults()
	if err != nil || len(list) != 2 || list[0].Home != "none" || list[1].Home != "share" || list[1].Kernel != dir+"/etc/vmlinuz" {
		t.Fatalf("%+v, %v", list, err)
	}
	lay(t, nil)
	if list, err := Defaults(); err != nil || len(list) != 0 {
		t.Errorf("no files: %v, %v", list, err)
	}
	lay(t, map[string]string{"etc/config.yaml": "name: all\n"})
	if _, err := Defaults(); err == nil || !strings.Contains(err.Error(), "name is of one cluster") {
		t.Errorf("a name for all clusters: %v", err)
	}
	lay(t, map[string]string{"user/config.yaml": "home: maybe\n"})
	if _, err := Defaults(); err == nil || !strings.Contains(err.Error(), "config.yaml:1:7") {
		t.Errorf("a wrong value: %v", err)
	}
}

// TestHostileFiles: a file that another user could have written, or that is not regular, is rejected and not read.
func TestHostileFiles(t *testing.T) {
	dir := lay(t, map[string]string{"user/config.yaml": "home: share\n", "user/templates/big.yaml": ""})
	path := filepath.Join(dir, "config/nearmetal/config.yaml")
	refused := func(what, want string) {
		t.Helper()
		if list, err := Defaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
	for _, mode := range []os.FileMode{0o664, 0o646, 0o777} {
		os.Chmod(path, mode)
		refused(mode.String(), "can be written to by others")
		os.Chmod(filepath.Join(dir, "config/nearmetal/templates/big.yaml"), mode)
		if _, err := Template("big"); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a template of mode %v: %v", mode, err)
		}
	}
	os.Chmod(path, 0o600)
	if os.Getuid() == 0 {
		os.Chown(path, 65534, 65534)
		refused("another user's", "belongs to user 65534")
	}
	os.Remove(path)
	unix.Mkfifo(path, 0o600)
	refused("a pipe", "is not a file")
	os.Remove(path)
	os.Mkdir(path, 0o700)
	refused("a directory", "is not a file")
	os.Remove(path)
	os.WriteFile(path, []byte(strings.Repeat("# much\n", 200000)), 0o600)
	refused("a large one", "larger than 1MiB")
}

func TestTemplates(t *testing.T) {
	dir := lay(t, map[string]string{"etc/templates/small.yaml": "# site\n", "etc/templates/big.yaml": "# site\n",
		"user/templates/small.yaml": "# user\n", "user/templates/no name.yaml": "", "user/templates/x.txt": ""})
	list := Templates()
	if len(list) != 2 || list[0].Name != "big" || list[1].Path != dir+"/config/nearmetal/templates/small.yaml" {
		t.Errorf("%v", list)
	}
	for name, want := range map[string]string{"small": "# user\n", "big": "# site\n"} {
		f, err := Template(name)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(f); string(text) != want {
			t.Errorf("%s: %q", name, text)
		}
		f.Close()
	}
	for _, name := range []string{"../config", "none", "", "a/b"} {
		if _, err := Template(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
