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
