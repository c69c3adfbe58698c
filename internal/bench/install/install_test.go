package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/suite"
)

// TestEverySuite: each suite has an installation: commands, or a text on a licence or a build.
func TestEverySuite(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	everything := Here{Root: true, Dir: "/programs", Has: func(string) bool { return true }}
	nothing := Here{Dir: "/programs", Has: func(string) bool { return false }}
	for _, s := range list {
		p, err := Make(s, "", everything)
		if err == nil && len(p.Commands) == 0 || err != nil && !strings.Contains(err.Error(), s.Experiments[0].Install) {
			t.Errorf("%s: %v, %v", s.Name, p, err)
		}
		if _, err := Make(s, "", nothing); err == nil || !strings.Contains(err.Error(), s.Experiments[0].Install) {
			t.Errorf("%s on a bare machine: %v", s.Name, err)
		}
	}
	for name, want := range map[string]string{"namd": "licence bars", "specmpi": "licence bars"} {
		for _, s := range list {
			if s.Name != name {
				continue
			}
			if _, err := Make(s, "", everything); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestSources(t *testing.T) {
	s := &suite.Suite{Name: "x", Packages: map[string][]string{"apt": {"a b"}, "pip": {"c"}, "spack": {"d"}, "dnf": {"e"}},
		Experiments: []suite.Experiment{{Install: "build it"}}}
	has := func(list ...string) func(string) bool {
		return func(p string) bool { return strings.Contains(" "+strings.Join(list, " ")+" ", " "+p+" ") }
	}
	for _, c := range []struct {
		source string
		here   Here
		want   string
	}{
		{"", Here{Root: true, Has: has("apt-get", "dpkg-deb")}, "apt-get install --yes --no-install-recommends 'a b'"},
		{"", Here{Dir: "/d", Has: has("apt-get", "dpkg-deb")}, "apt-get download"},
		{"", Here{Root: true, Has: has("dnf")}, "dnf install --assumeyes 'e'"},
		{"", Here{Dir: "/d", Has: has("dnf", "python3")}, "'/d/venv/bin/pip' install 'c'"},
		{"spack", Here{Dir: "/d", Has: has("spack", "python3")}, "spack install 'd'"},
		{"spack", Here{Dir: "/d", Has: has("python3")}, "spack is not here (for d): build it"},
		{"", Here{Has: has("dnf")}, "dnf installs for root alone"},
		{"brew", Here{Has: has()}, `there is no source "brew"`},
	} {
		p, err := Make(s, c.source, c.here)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(p.Commands, "\n")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
	}
}

// TestAptWithoutRoot: a user's commands install packages and their dependencies, do nothing if all are installed, and
// fail if apt does.
func TestAptWithoutRoot(t *testing.T) {
	if _, err := exec.LookPath("sed"); err != nil {
		t.Fatal(err)
	}
	s := &suite.Suite{Name: "x", Packages: map[string][]string{"apt": {"lammps"}}, Experiments: []suite.Experiment{{Install: "build it"}}}
	uris := `'http://mirror/l/lammps_1%3a2-3_amd64.deb' lammps_1%3a2-3_amd64.deb 7 SHA256:0
'http://mirror/f/libfftw3_3-1_amd64.deb' libfftw3_3-1_amd64.deb 7 SHA256:0
`
	for _, c := range []struct{ printed, got, unpacked string }{
		{"cat <<'E'\n" + uris + "E\n", "download lammps libfftw3", "libfftw3.deb lammps.deb"},
		{":", "", ""},
		{"exit 100", "exit status 100", ""},
	} {
		bin, dir := t.TempDir(), t.TempDir()
		for name, text := range map[string]string{
			"apt-get":  "[ \"$1\" = download ] || { " + c.printed + "\nexit; }\necho \"$@\" >>" + dir + "/got\nshift\nfor p; do : >$p.deb; done\n",
			"dpkg-deb": "basename \"$2\" >>" + dir + "/unpacked\n",
		} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p, err := Make(s, "apt", Here{Dir: dir, Has: func(string) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		failed := ""
		for _, command := range p.Commands {
			cmd := exec.Command("sh", "-c", command)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				failed = err.Error()
				t.Logf("%s: %v: %s", command, err, out)
				break
			}
		}
		got, _ := os.ReadFile(filepath.Join(dir, "got"))
		unpacked, _ := os.ReadFile(filepath.Join(dir, "unpacked"))
		names := strings.Fields(string(unpacked))
		slices.Sort(names)
		want := strings.Fields(c.unpacked)
		slices.Sort(want)
		if strings.TrimSpace(string(got))+failed != c.got || !slices.Equal(names, want) {
			t.Errorf("apt prints %q: %q, %q, unpacked %q", c.printed, got, failed, names)
		}
	}
}

// TestWrap: a program that was unpacked without root runs with its own libraries.
func TestWrap(t *testing.T) {
	dir := t.TempDir()
	if n, err := Wrap(dir); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	for name, text := range map[string]string{"root/usr/bin/hello": "#!/bin/sh\necho \"$LD_LIBRARY_PATH $1\"\n", "root/usr/lib/blas/libblas.so.3": "", "root/usr/lib/dummy/libPstream.so": "", "root/usr/lib/x/libhello.so.1": ""} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Wrap(dir); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	cmd := exec.Command(filepath.Join(dir, "bin/hello"), "there")
	cmd.Env = []string{"LD_LIBRARY_PATH=/other", "PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	lib := filepath.Join(dir, "root/usr/lib")
	// Replacements of better libraries come last.
	if want := lib + "/x:" + lib + "/blas:" + lib + "/dummy:/other there\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}
