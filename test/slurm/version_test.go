package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/slurm/bed"
)

// atLeast reports whether the Slurm that runs is YEAR.MONTH or newer: what it can do differs.
func atLeast(t *testing.T, year, month int) bool {
	t.Helper()
	y, m, err := bed.Version()
	if err != nil {
		t.Fatal(err)
	}
	return y > year || y == year && m >= month
}

// Each task of a --multi-prog step runs its own program in its VM, from Slurm 23.11 on; before, where the
// plugin could not tell which program is whose, such a step is refused.
func TestMultiProg(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	const programs = `0 sh -c 'echo $(hostname): task $SLURM_PROCID'
1-2 echo others: %t of %o
* sh -c 'hostname; exit 3'
`
	if err := os.WriteFile(filepath.Join(a.home, "programs"), []byte(programs), 0o644); err != nil {
		t.Fatal(err)
	}
	r, read := a.script(t, []string{"-w", "n1", "-n2", "--mem=3000", "--gres=region:64M", "--vm=vms=2," + small},
		"srun -l -n4 --overcommit --multi-prog ../programs >out 2>err; echo $? >code\n")
	out, said, code := sorted(read("out")), read("err"), strings.TrimSpace(read("code"))
	if r.code != 0 {
		t.Errorf("%+v", r)
	}
	if !atLeast(t, 23, 11) {
		if code == "0" || out != "" || !strings.Contains(said, "--multi-prog with --vm needs Slurm 23.11 or newer") {
			t.Errorf("status %s, %q\n%s", code, out, said)
		}
		return
	}
	if want := "0: n1-vm0: task 0, 1: others: 1 of 0, 2: others: 2 of 1, 3: n1-vm1"; out != want || code != "3" {
		t.Errorf("status %s, %q, want 3, %q\n%s", code, out, want, said)
	}
}
