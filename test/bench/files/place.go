package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// smallFiles is how many small files are read, of which each has 4 KiB.
const smallFiles = 1000

// bench is what all places are made from.
type bench struct {
	program string
	dir     string // of this run
	small   string // a folder of small files, below the VMs' root
	python  string // an interpreter whose modules are below the VMs' root
	mib     int
	only    []string // parts

	mu sync.Mutex
	up []string // clusters
}

// place is where files are seen: by 9p or virtiofs, on a tmpfs in a VM, on the host.
type place struct {
	name    string
	exec    []string // runs a command there
	asRoot  []string
	caches  bool   // the caches can be dropped: cold is another figure than warm
	small   string // folder of small files
	python  string // command of Python's
	modules string // folder of modules, for find
	share   string // a folder to write to
}

func newBench(program, dir string, mib int, only []string) (*bench, error) {
	python, err := filepath.Abs("build/venv/numpy/bin/python3")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		return nil, fmt.Errorf("sh scripts/wheels.sh numpy: %w", err)
	}
	b := &bench{program: program, dir: dir, small: filepath.Join(dir, "small"), python: python, mib: mib, only: only}
	os.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(dir, "run"))
	os.Setenv("NEARMETAL_ROOT_WRITES", "1")
	os.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	if err := os.Mkdir(b.small, 0o755); err != nil {
		return nil, err
	}
	for i := range smallFiles {
		if err := os.WriteFile(filepath.Join(b.small, fmt.Sprint(i)), bytes.Repeat([]byte{'x'}, 4096), 0o644); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// start starts a VM whose files come by kind, and whose share is a folder of its own.
func (b *bench) start(kind, memory string) (share string, err error) {
	share = filepath.Join(b.dir, "share-"+kind)
	file := filepath.Join(b.dir, kind+".yaml")
	if err := errors.Join(os.MkdirAll(share, 0o755), os.WriteFile(file, []byte("files: "+kind+"\n"), 0o644)); err != nil {
		return "", err
	}
	b.mu.Lock()
	b.up = append(b.up, kind)
	b.mu.Unlock()
	cmd := exec.Command(b.program, "-q", "up", "--name", kind, "-f", file, "--vms", "1", "--vcpus", "2", "--memory", memory, "--no-verify")
	cmd.Dir = share
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("up, files: %s: %w: %s", kind, err, out)
	}
	return share, nil
}

func (b *bench) down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.up {
		exec.Command(b.program, "down", name).Run()
	}
	b.up = nil
}

// places starts the VMs.
func (b *bench) places() ([]*place, error) {
	var all []*place
	for _, kind := range []string{"9p", "virtiofs"} {
		share, err := b.start(kind, "3GiB")
		if err != nil {
			return nil, err
		}
		p := &place{name: kind, exec: []string{b.program, "exec", kind, "--"}, asRoot: []string{b.program, "exec", "--as-root", kind, "--"},
			caches: true, small: b.small, python: b.python, share: share}
		p.modules = filepath.Join(filepath.Dir(filepath.Dir(b.python)), "lib")
		all = append(all, p)
	}
	tmpfs, err := b.tmpfs(*all[1])
	if err != nil {
		return nil, err
	}
	host := *all[0]
	host.name, host.exec, host.asRoot, host.caches, host.share = "host", nil, nil, false, filepath.Join(b.dir, "share-host")
	return append(all, tmpfs, &host), os.Mkdir(host.share, 0o755)
}

// tmpfs puts what the parts read on a tmpfs of the VM of v. Times of files are kept: without them Python would compile each
// module again.
func (b *bench) tmpfs(v place) (*place, error) {
	const at = "/mnt/tmpfs"
	t := v
	t.name, t.caches, t.small, t.share = "tmpfs", false, at+"/small", at
	t.python = "env PYTHONHOME=" + at + "/home PYTHONPATH=" + at + "/modules " + at + "/home/bin/python3"
	t.modules = at + "/modules"
	script := `set -e
mkdir -p ` + at + `; mount -t tmpfs -o size=2g,mode=1777 none ` + at + "\n"
	if b.measures("small") {
		script += "cp -r " + b.small + " " + at + "/small\n"
	}
	if b.measures("small", "imports", "ranks") {
		script += `eval "$(` + b.python + ` -c 'import sys, sysconfig, os
print("lib=%s own=%s site=%s" % (sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}), os.path.realpath(sys.executable), sysconfig.get_path("purelib")))')"
mkdir -p ` + at + `/home/bin ` + at + `/home/lib
cp $own ` + at + `/home/bin/python3
tar -C "${lib%/*}" -c --exclude=test --exclude=site-packages "${lib##*/}" | tar -C ` + at + `/home/lib -x
cp -a $site ` + at + `/modules
`
	}
	if _, err := t.run(t.asRoot, script); err != nil {
		return nil, fmt.Errorf("tmpfs: %w", err)
	}
	return &t, nil
}

// measures says whether one of these parts is measured.
func (b *bench) measures(parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(b.only, p) })
}

// run runs a shell script by a command in front of it, in the place's share.
func (p *place) run(by []string, script string) (string, error) {
	args := append(append([]string{}, by...), "sh", "-c", script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(out), nil
}

// time runs prepare as root, and returns how many seconds the script takes by the place's own clock.
func (p *place) time(prepare, script string) (float64, error) {
	if prepare != "" {
		if _, err := p.run(p.asRoot, prepare); err != nil {
			return 0, err
		}
	}
	out, err := p.run(p.exec, "set -e; a=$(date +%s%N); { "+script+"; } >/dev/null; b=$(date +%s%N); echo $((b - a))")
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	return float64(ns) / 1e9, err
}

// boots measures VMs from their start until they are ready, by their records.
func (b *bench) boots(n int, t *table) error {
	for range n {
		for _, p := range t.places[:2] {
			if _, err := b.start(p.name, "512MiB"); err != nil {
				return err
			}
			text, err := exec.Command(b.program, "ps", p.name, "--json").Output()
			b.down()
			var r struct{ VMs []struct{ ReadyNs int64 } }
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil || len(r.VMs) != 1 || r.VMs[0].ReadyNs == 0 {
				return fmt.Errorf("ps: %w: %s", err, text)
			}
			t.add(bootToReady, p, time.Duration(r.VMs[0].ReadyNs).Seconds())
		}
	}
	return nil
}
