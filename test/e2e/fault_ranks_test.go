package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A VM is killed while its ranks talk to those of two others over the provider: what touches
// them fails with FI_EIO, in bounded time, all others go on, within their VM and between
// VMs, and the slots of the dead are had again. testdata/vmgone.c looks for all that.
func TestFaultRanksOfVM(t *testing.T) {
	needs(t, "gcc")
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	program := filepath.Join(dir, "vmgone")
	out, err := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, "testdata/vmgone.c", "-lfabric").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	p := newPlace(t)
	p.up("x", "--vms", "3")
	var ranks []*victim
	for rank, vm := range []string{"vm0", "vm0", "vm1", "vm2", "vm2"} {
		ranks = append(ranks, p.start("exec", "-c", "x", "--vm", vm, "--", "env",
			"FI_IVSHMEM_TIMEOUT=3000", "FI_IVSHMEM_RANKS=16", program, strconv.Itoa(rank), "5", "3"))
	}
	for _, v := range ranks {
		until(t, "a message from everybody", func() bool {
			select {
			case <-v.ended:
				t.Fatalf("%v ended\n%s", v.cmd.Args[1:], v.errs)
			default:
			}
			return strings.Contains(v.out.String(), "talking")
		})
	}
	begin := time.Now()
	unix.Kill(p.record("x").VMs[2].PID, unix.SIGKILL)
	for _, v := range ranks[:3] {
		v.wantStatus(0)
		if !strings.Contains(v.out.String(), "2 are gone, the others went on") {
			t.Errorf("%s%s", v.out, v.errs)
		}
	}
	t.Logf("the living had seen all after %v", time.Since(begin))
	for _, v := range ranks[3:] {
		v.wantStatus(125, "vm2")
	}
	finish(t, p.command("down", "x"), "").want(t, 0)
	p.nothing()
}
