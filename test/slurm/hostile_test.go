package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/slurm/bed"
)

// A user who does to his own jobs what he can: nothing of it drains a host, fails an epilog or fills what is not
// his. clean waits for idle hosts, which a drained one never is.
func TestHostileUser(t *testing.T) {
	a := newAccount(t, 1)
	script := func(name, text string) string {
		t.Helper()
		file := filepath.Join(a.home, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	// A job of his on the host meets the next one's VMs while they boot.
	beside := func(t *testing.T, text string) {
		t.Helper()
		os.Remove(filepath.Join(a.home, "ready"))
		os.Remove(filepath.Join(a.home, "enough"))
		os.RemoveAll(filepath.Join(a.home, ".cache")) // QEMU is asked anew
		r := a.run(t, "sbatch", "--parsable", "-w", "n2", "-n1", "--mem=100", "-o", "/dev/null",
			script("beside", ": >ready; while ! test -e enough; do "+text+"; done"))
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		await(t, "the job beside", func() bool { _, err := os.Stat(filepath.Join(a.home, "ready")); return err == nil })
		t.Cleanup(func() {
			if err := os.WriteFile(filepath.Join(a.home, "enough"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			slurm(t, "scancel", strings.TrimSpace(r.out))
		})
	}
	t.Run("QEMU killed while it is asked", func(t *testing.T) {
		t.Cleanup(func() { clean(t) })
		beside(t, "pkill -9 -u $(id -u) qemu-system")
		r := a.run(t, "srun", "-w", "n2", "-n1", "--mem=1000", "--vm="+small, "hostname")
		if r.code == 0 || !strings.Contains(r.err, "nearmetal: n2: ") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the folder opened to all", func(t *testing.T) {
		t.Cleanup(func() { clean(t) })
		// He may not list root's folder, but he knows the numbers to come.
		beside(t, "chmod 777 $(seq -f "+state+"/%g.n2/run 1 99) 2>/dev/null")
		r := a.run(t, "srun", "-w", "n2", "-n1", "--mem=1000", "--vm="+small, "hostname")
		// Who of the two is first is open.
		if r.out != "n2-vm0\n" && !strings.Contains(r.err, "can be written to by others") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a folder that is full, deep, closed and in use", func(t *testing.T) {
		t.Cleanup(func() { clean(t) })
		r := a.run(t, "sbatch", "--wait", "-w", "n2", "-n1", "--mem=1000", "--vm="+small, "-o", a.home+"/out", script("inside", `
cd $NEARMETAL_RUNTIME_DIR || exit 9
dd if=/dev/zero of=zeros bs=1M count=1000 2>/dev/null
stat -c %s zeros
rm zeros
i=0; while [ $i -lt 300 ] && mkdir d && cd d; do i=$((i+1)); done
echo $i
env -i sleep 30 >open &
chmod 0 $NEARMETAL_RUNTIME_DIR
`))
		var bytes, deep int
		text, _ := os.ReadFile(a.home + "/out")
		if n, _ := fmt.Sscan(string(text), &bytes, &deep); n != 2 || bytes > 64<<20 || deep != 300 {
			t.Errorf("%+v\n%s\n%s", r, text, cluster.Logs())
		}
	})
}

// A user who writes the request for VMs himself: what it makes root hand out is back when the job has ended, and
// what is not a request fails its job.
func TestLyingRequest(t *testing.T) {
	root := hostWithVFs(t)
	pool := filepath.Join(root, "sys/devices/system/node/node0/hugepages/hugepages-2048kB")
	if err := os.MkdirAll(pool, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nr_hugepages", "free_hugepages", "surplus_hugepages"} {
		if err := os.WriteFile(filepath.Join(pool, name), []byte("0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bed.Start(bed.Options{
		Nodes: 1, CPUs: 2, MemoryMB: 4000, Plugstack: plugstack("sysroot=" + root), Gres: "vf:igb:2",
		Files: map[string]string{"gres.conf": "Name=vf Type=igb File=" + root + "/dev/vfio/[8-9]\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)

	// What loads the user's own plugin in place of the site's.
	dir := scratch(t)
	compile(t, "testdata/liar.c", "gcc", filepath.Join(dir, "liar.so"), "-shared", "-fPIC")
	conf, err := os.ReadFile(b.Conf())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plugstack.conf": "required " + dir + "/liar.so\n",
		"slurm.conf":     strings.ReplaceAll(string(conf), b.Path("plugstack.conf"), dir+"/plugstack.conf"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	submit := func(lie, script string, args ...string) result {
		t.Helper()
		os.Remove(filepath.Join(a.home, "out"))
		cmd := a.command(t, "sbatch", append(append([]string{"--parsable", "-n1", "--mem=1000", "--gres=vf:igb:1", "-o", a.home + "/out"}, args...), "--wrap", script)...)
		cmd.Env = append(b.Environ(a.name, a.home), "SLURM_CONF="+dir+"/slurm.conf", "LIE="+lie)
		return finish(t, cmd, "")
	}
	// has is who has the host's VFs, and how many pages were made.
	has := func() string {
		t.Helper()
		n, err := os.ReadFile(filepath.Join(pool, "nr_hugepages"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(owners(t, root), " ", strings.TrimSpace(string(n)))
	}
	returned := func(what string) {
		t.Helper()
		await(t, what+": VFs and pages returned, and nothing of the job left", func() bool {
			journals, _ := filepath.Glob(root + "/var/lib/nearmetal/*.done")
			folders, _ := filepath.Glob(state + "/*.n1")
			return has() == "[0 0] 0" && len(journals) == 0 && len(folders) == 0
		})
	}
	request := func(memory, keep string, bytes int) string {
		text := "1 vm=1 file=/" + strings.Repeat("%20", 1010) + " vms=1 memory=" + memory + " root=/ vf=igb:1 pages=2MiB keep=" + keep
		return strings.Replace(text, " root=/", " root=/"+strings.Repeat("a", max(bytes-len(text), 0)), 1)
	}
	for what, lie := range map[string]string{
		"cut, it ends in keep=ste": strings.Replace(request("268435456", "step", 4096), "=268435456", "=256M", 1),
		"too long":                 request("268435456", "step", 4096),
		"keep=ste":                 request("268435456", "ste", 0),
		"not plain":                "1 vm=1 vf=igb%3A1",
		"no request":               "\x01\xff",
	} {
		r := submit(lie, "srun true; echo $?", "--wait")
		returned(what)
		// A step without --vm and without the site's plugin fails as well: its job has VMs.
		text, _ := os.ReadFile(a.home + "/out")
		if r.code != 0 || !strings.Contains(string(text), "nearmetal: n1: the job's request for VMs is ") || !strings.HasSuffix(string(text), "\n1\n") {
			t.Errorf("%s: %+v\n%s", what, r, text)
		}
	}

	// Whatever became of the request that root has written down, the epilog returns everything.
	for what, damage := range map[string]string{"a request of another kind": "1 vm=1 keep=ste\n%d %d\n/\n", "no whole request": "1 vm=1"} {
		os.Remove(filepath.Join(a.home, "up"))
		r := submit(request("268435456", "step", 4095), ": >up; exec sleep 600")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		id := strings.TrimSpace(r.out)
		await(t, "the job with a VF and pages", func() bool { return has() == fmt.Sprintf("[%d 0] 128", a.uid) })
		await(t, "its script", func() bool { _, err := os.Stat(filepath.Join(a.home, "up")); return err == nil })
		if strings.Contains(damage, "%") {
			damage = fmt.Sprintf(damage, a.uid, a.gid)
		}
		if err := os.WriteFile(filepath.Join(state, id+".n1", "request"), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.Command("scancel", id).Run(); err != nil {
			t.Fatal(err)
		}
		returned(what)
	}
	if out, err := b.Command("sinfo", "-R", "-h", "-o", "%E").Output(); err != nil || len(out) > 0 {
		t.Errorf("a host is drained: %s, %v", out, err)
	}
}

// A job whose memory holds not even QEMU: what the kernel kills there is no fault of the host.
func TestTinyMemory(t *testing.T) {
	needCgroups(t)
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Plugstack: plugstack(), Cgroup: true,
		Extra: fmt.Sprintf("FirstJobId=%d\n", 100000+os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)
	for _, mib := range []string{"5", "40", "50", "60", "80"} {
		os.RemoveAll(filepath.Join(a.home, ".cache")) // QEMU is asked anew
		cmd := a.command(t, "srun", "-n1", "--mem="+mib, "--vm", "hostname")
		cmd.Env = b.Environ(a.name, a.home)
		r := finish(t, cmd, "")
		if r.code == 0 {
			t.Errorf("%s MiB: %+v", mib, r)
		}
		t.Logf("%s MiB: %s", mib, r.err)
		if err := b.AwaitIdle(); err != nil {
			out, _ := b.Command("sinfo", "-R", "-N").Output()
			t.Fatalf("%s MiB: %v\n%s%s", mib, err, out, b.Logs())
		}
	}
}
