package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The VMs of an ordinary user's job over two nodes see nothing of the host's own through what is exported, whoever boots
// them and however closely they are fenced in. Their owner knows a secret: its memory and files are closed to others.
func TestCoversOverNodes(t *testing.T) {
	defer clean(t)
	a, b := newAccount(t, 1), newAccount(t, 2)
	other := filepath.Join("/tmp", fmt.Sprint("nm-other-", os.Getpid()))
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(other+"/file", []byte("secret"), 0o644), os.Chown(other, b.uid, b.gid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	script := "for f in /proc/1/cmdline /sys/kernel/notes /dev/null " + other + "/file; do test ! -e /host$f || echo reached $f; done\n" +
		"ls -A /host/proc /host/sys /host/dev /host/run | grep -v : | grep . && echo reached folders; cmp /host/etc/passwd /etc/passwd && echo looked\n"
	if err := os.WriteFile(filepath.Join(a.home, "look"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ isolation, keep string }{{"auto", "job"}, {"standard", "job"}, {"standard", "step"}, {"strict", "job"}} {
		t.Run(c.isolation+" "+c.keep, func(t *testing.T) {
			file := filepath.Join(a.home, c.isolation+".yaml")
			text := "version: 1\nisolation: " + c.isolation + "\nvms: [{vcpus: 1, memory: 256MiB}]\nshares: [{path: .}, {path: /, target: /host, mode: ro}]\n"
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			r := a.run(t, "srun", "-N2", "-n2", "--mem=700", "--vm="+file, "--vm-keep="+c.keep, "sh", "./look")
			if r.code != 0 || r.out != "looked\nlooked\n" || strings.Contains(r.err, "as you do") {
				t.Errorf("%+v\n%s", r, cluster.Logs())
			}
		})
	}
}

// What the VMs of a job do without is said once on each host, as nearmetal run says it.
func TestLessThanAsked(t *testing.T) {
	if len(emulated) == 0 {
		t.Skip("this host has KVM")
	}
	defer clean(t)
	stack(t, sitePlugstack())
	defer stack(t, plugstack())
	for _, keep := range []string{"job", "step"} {
		r := newAccount(t, 1).run(t, "srun", "-w", "n1", "-n2", "--mem=700", "--vm="+small, "--vm-keep="+keep, "true")
		if r.code != 0 || strings.Count(r.err, "using TCG (emulation)") != 1 {
			t.Errorf("--vm-keep=%s: %+v", keep, r)
		}
	}
}
